"""SCOPE-RL in JAX: see README.md for a map."""

import os

os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # it would say at every start that torch is missing
