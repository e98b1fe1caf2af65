"""Checks answers on the host, where the device cannot tell."""

from scope_jax.verify.extract import extract_answer as extract_answer
from scope_jax.verify.extract import extract_slots as extract_slots
from scope_jax.verify.pool import Verifier as Verifier
from scope_jax.verify.pool import verify as verify
from scope_jax.verify.result import Result as Result
