"""Rewards from token ids, on the device."""

from scope_jax.rewards.bytes import ByteView as ByteView
from scope_jax.rewards.bytes import TokenBytes as TokenBytes
from scope_jax.rewards.bytes import completion_bytes as completion_bytes
