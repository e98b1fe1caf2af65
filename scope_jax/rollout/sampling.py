"""One sampled token a row, from logits."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray


def policy_logprobs(logits: Float[Array, "... V"], temperature: float) -> Float[Array, "... V"]:
    """Log-probs of the policy that is sampled and optimised: softmax(logits / temperature).

    Greedy decoding (temperature 0) reports the log-probs of temperature 1.
    """
    # The largest is taken off before the division: after it, a fused multiply-add leaves a rest that overflows exp.
    shifted = logits - jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
    shifted = shifted / temperature if temperature > 0 else shifted
    return shifted - jnp.log(jnp.sum(jnp.exp(shifted), axis=-1, keepdims=True))


def keep_top_k(logits: Float[Array, "B V"], top_k: int) -> Float[Array, "B V"]:
    """Minus infinity for all but the `top_k` largest logits (ties with the last one stay); 0 keeps all."""
    if top_k <= 0 or top_k >= logits.shape[-1]:
        return logits
    threshold = jax.lax.top_k(logits, top_k)[0][..., -1:]
    return jnp.where(logits < threshold, -jnp.inf, logits)


def keep_top_p(logits: Float[Array, "B V"], top_p: float) -> Float[Array, "B V"]:
    """Minus infinity for all but the smallest set of likeliest tokens whose mass reaches `top_p`; 1.0 keeps all.

    The likeliest token stays, whatever `top_p`; ties with the last one stay too.
    """
    if top_p >= 1.0:
        return logits
    descending = jnp.sort(logits, axis=-1, descending=True)
    probabilities = jax.nn.softmax(descending, axis=-1)
    mass_before = jnp.cumsum(probabilities, axis=-1) - probabilities
    kept = (mass_before < top_p).at[..., 0].set(True)
    threshold = jnp.min(jnp.where(kept, descending, jnp.inf), axis=-1, keepdims=True)
    return jnp.where(logits < threshold, -jnp.inf, logits)


def sample_token(
    logits: Float[Array, "B V"], key: PRNGKeyArray, *, temperature: float, top_k: int = 0, top_p: float = 1.0
) -> tuple[Int[Array, "B"], Float[Array, "B"]]:
    """Samples a token a row, and its log-prob under the untruncated policy, which is what the trainer optimises.

    Args:
      logits: float32 logits.
      key: PRNG key of this step; rows draw independently.
      temperature: 0.0 is greedy.
      top_k: number of likeliest tokens kept; 0 is off.
      top_p: mass of likeliest tokens kept; 1.0 is off.
    """
    logprobs = policy_logprobs(logits, temperature)
    if temperature > 0:
        token = jax.random.categorical(key, keep_top_p(keep_top_k(logprobs, top_k), top_p), axis=-1)
    else:
        token = jnp.argmax(logits, axis=-1)
    return token.astype(jnp.int32), jnp.take_along_axis(logprobs, token[:, None], axis=-1)[:, 0]
