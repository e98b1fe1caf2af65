"""What the first hour needs installed: the commands load nothing that only some of them use."""

import json
import subprocess
import sys

COMMANDS = ("train", "evaluate", "report", "decompose", "data.convert")
# Engines, trainers and readers of other systems, and what only plots, TFDS folders and verifier workers need.
OPTIONAL = ("vllm", "sglang", "trl", "tensorflow", "tensorflow_datasets", "datasets", "openai", "matplotlib", "sympy", "math_verify")
PROGRAM = """
import importlib, json, sys
for name in {refused}:
    sys.modules[name] = None  # as if it were not installed
for command in {commands}:
    importlib.import_module(f"scope_jax.{{command}}")
print(json.dumps(sorted(name for name in sys.modules if sys.modules[name] is not None)))
"""


def loaded(refused):
    program = PROGRAM.format(refused=refused, commands=COMMANDS)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=240)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_commands_start_without_torch_or_any_optional_package():
    """A user who has none of them must get a run, not an ImportError of something that the run never uses."""
    found = loaded(("torch", *OPTIONAL))
    assert {"jax", "transformers", "scope_jax.train"} <= found
    assert not found & {"torch", *OPTIONAL}


def test_optional_packages_that_are_installed_are_not_loaded_either():
    assert not loaded(()) & set(OPTIONAL)
