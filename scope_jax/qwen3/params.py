"""Parameters of a model as one plain pytree; each array described once: shape, logical axes, initialiser."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from scope_jax.qwen3.config import Config

Params = dict  # nested dict of arrays, laid out as `describe` says


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One array before it exists. Sharding, initialisation and import all read this single description."""

    shape: tuple[int, ...]
    axes: tuple[str, ...]  # logical axis names, mapped to mesh axes by the rules table
    init: str  # "normal", "ones" or "zeros"


def describe(config: Config) -> dict:
    """The pytree of `Leaf`s of a model. Layers are stacked on a leading axis, as `lax.scan` wants them."""
    c, n = config, config.num_layers
    kv_shape = (n, c.d_model, c.num_kv_heads, c.head_dim)
    kv_bias = Leaf((n, c.num_kv_heads, c.head_dim), ("layers", "kv_heads", "head_dim"), "zeros")
    biases = {
        "q_bias": Leaf((n, c.num_heads, c.head_dim), ("layers", "heads", "head_dim"), "zeros"),
        "k_bias": kv_bias,
        "v_bias": kv_bias,
    }
    norm = Leaf((n, c.head_dim), ("layers", "head_dim"), "ones")
    leaves = {
        "embed": Leaf((c.vocab_size, c.d_model), ("vocab", "embed"), "normal"),
        "layers": {
            "attn_norm": Leaf((n, c.d_model), ("layers", "norm"), "ones"),
            "q": Leaf((n, c.d_model, c.num_heads, c.head_dim), ("layers", "embed", "heads", "head_dim"), "normal"),
            "k": Leaf(kv_shape, ("layers", "embed", "kv_heads", "head_dim"), "normal"),
            "v": Leaf(kv_shape, ("layers", "embed", "kv_heads", "head_dim"), "normal"),
            "o": Leaf((n, c.num_heads, c.head_dim, c.d_model), ("layers", "heads", "head_dim", "embed"), "normal"),
            **(biases if c.qkv_bias else {}),
            **({"q_norm": norm, "k_norm": norm} if c.qk_norm else {}),
            "mlp_norm": Leaf((n, c.d_model), ("layers", "norm"), "ones"),
            "gate": Leaf((n, c.d_model, c.d_ff), ("layers", "embed", "mlp"), "normal"),
            "up": Leaf((n, c.d_model, c.d_ff), ("layers", "embed", "mlp"), "normal"),
            "down": Leaf((n, c.d_ff, c.d_model), ("layers", "mlp", "embed"), "normal"),
        },
        "final_norm": Leaf((c.d_model,), ("norm",), "ones"),
    }
    if c.reward_classes:
        # The mlp's axis cuts the inner width: its rule names other mesh axes than embed's, as those of a matrix must.
        leaves["reward"] = {
            "inner": Leaf((c.d_model, c.d_model), ("embed", "mlp"), "normal"),
            "inner_bias": Leaf((c.d_model,), ("mlp",), "zeros"),
            "outer": Leaf((c.d_model, c.reward_classes), ("mlp", "classes"), "normal"),
            "outer_bias": Leaf((c.reward_classes,), ("classes",), "zeros"),
        }
    elif not c.tie_embeddings:
        leaves["lm_head"] = Leaf((c.d_model, c.vocab_size), ("embed", "vocab"), "normal")
    return leaves


def init(config: Config, key: PRNGKeyArray, *, dtype: jnp.dtype | None = None, scale: float = 0.02) -> Params:
    """Random parameters: normal with standard deviation `scale`, norms at one, biases at zero.

    Args:
      config: the architecture.
      key: PRNG key.
      dtype: dtype of the arrays, float32 unless told.
    """
    leaves, structure = jax.tree.flatten(describe(config), is_leaf=lambda x: isinstance(x, Leaf))
    dtype = jnp.dtype(dtype or jnp.float32)

    def make(leaf, key):
        if leaf.init != "normal":
            return jnp.full(leaf.shape, {"ones": 1, "zeros": 0}[leaf.init], dtype)
        return scale * jax.random.normal(key, leaf.shape, dtype)

    return structure.unflatten([make(*pair) for pair in zip(leaves, jax.random.split(key, len(leaves)), strict=True)])


def count(params: Params) -> int:
    """Number of parameters."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))
