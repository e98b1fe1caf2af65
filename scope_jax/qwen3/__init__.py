"""Dense decoders (Qwen3, Qwen2, Llama) as pure functions on a plain pytree."""

from scope_jax.qwen3.config import Config
from scope_jax.qwen3.forward import forward
from scope_jax.qwen3.hf import load, save
from scope_jax.qwen3.params import init
from scope_jax.qwen3.sharding import partition_specs

__all__ = ["Config", "forward", "init", "load", "partition_specs", "save"]
