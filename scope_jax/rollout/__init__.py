"""Sampling from the policy with a KV cache."""

from scope_jax.rollout.generate import Rollout, generate

__all__ = ["Rollout", "generate"]
