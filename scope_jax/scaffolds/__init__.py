"""Scaffolds: sub-questions drafted by a language model, and the tests that a scaffold must pass (SCOPE-RL, V P D H)."""
