"""Advantages, token log-probs, policy losses and the update."""

from scope_jax.policy.advantages import effective_gradient_ratio, group_advantages
from scope_jax.policy.logprobs import token_logprobs
from scope_jax.policy.losses import policy_loss
