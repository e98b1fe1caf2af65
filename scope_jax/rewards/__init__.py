"""Rewards from token ids, on the device."""

from scope_jax.rewards.bytes import ByteView as ByteView
from scope_jax.rewards.bytes import TokenBytes as TokenBytes
from scope_jax.rewards.bytes import completion_bytes as completion_bytes
from scope_jax.rewards.asr import asr_reward as asr_reward
from scope_jax.rewards.outcome import outcome_reward as outcome_reward
from scope_jax.rewards.outcome import route as route
from scope_jax.rewards.overlong import overlong_penalty as overlong_penalty
from scope_jax.rewards.qpr import STEP_LABELS as STEP_LABELS
from scope_jax.rewards.qpr import holistic_quality as holistic_quality
from scope_jax.rewards.qpr import holistic_reward as holistic_reward
from scope_jax.rewards.qpr import process_quality as process_quality
from scope_jax.rewards.qpr import qpr_reward as qpr_reward
from scope_jax.rewards.answers import RIGHT as RIGHT
from scope_jax.rewards.answers import UNDECIDED as UNDECIDED
from scope_jax.rewards.answers import WRONG as WRONG
from scope_jax.rewards.answers import AnswerKey as AnswerKey
from scope_jax.rewards.segments import segment_bytes as segment_bytes
from scope_jax.rewards.segments import segment_steps as segment_steps
from scope_jax.rewards.segments import segment_text as segment_text
from scope_jax.rewards.slots import verify_main as verify_main
from scope_jax.rewards.slots import verify_slots as verify_slots
from scope_jax.rewards.steps import rule_labels as rule_labels
