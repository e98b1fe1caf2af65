"""What every test runs on: eight virtual CPU devices, exact matrix products, no network."""

import dataclasses
import os

# Read when jax starts its backend, so these lines stand above every import of jax.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["HF_HUB_OFFLINE"] = "1"
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = (os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8").strip()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402

from scope_jax import qwen3  # noqa: E402
from scope_jax.qwen3.params import Leaf, describe  # noqa: E402

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_default_matmul_precision", "highest")
# Most of the tests' time is compilation. Commands that tests start as processes are compiled as a user's are.
jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture(scope="session")
def tiny_config():
    """A two-layer Qwen3 whose sizes all differ, so that a swapped axis shows as a shape error."""
    return qwen3.Config(
        vocab_size=61, d_model=20, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=6, d_ff=28, eos_ids=(3,)
    )


@pytest.fixture(scope="session")
def tiny_params(tiny_config):
    """Random float32 parameters of `tiny_config`."""
    return draw_params(tiny_config)


@pytest.fixture(scope="session")
def tiny_models(tiny_config):
    """A tiny Qwen2 and a tiny Llama: config and parameters by name."""
    switches = {"qwen2": {"qk_norm": False, "qkv_bias": True}, "llama": {"qk_norm": False}}
    configs = {name: dataclasses.replace(tiny_config, **switches) for name, switches in switches.items()}
    return {name: (config, draw_params(config)) for name, config in configs.items()}


def draw_params(config):
    """Random float32 parameters, large enough that a wrong mask, position, norm or bias moves the logits."""
    rng = np.random.default_rng(0)  # NumPy: nothing to compile

    def draw(leaf):
        return jnp.asarray(0.2 * rng.normal(size=leaf.shape) + (leaf.init == "ones"), jnp.float32)

    return jax.tree.map(draw, describe(config), is_leaf=lambda x: isinstance(x, Leaf))


def pytest_collection_modifyitems(items):
    """Slow tests run last: a mistake shows early."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)
