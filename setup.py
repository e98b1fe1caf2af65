"""Install with `pip install -e .[dev]`; lower bounds are the versions that the tests ran with."""

import setuptools

extras = {
    "tpu": ["jax[tpu]"],
    "cuda": ["jax[cuda13]"],
    "judge": ["httpx2>=2.16"],
    "notebooks": ["ipykernel>=7", "nbclient>=0.11", "nbformat>=5"],
    "dev": [
        "pytest>=9",
        "pytest-xdist>=3.8",
        "hypothesis>=6.170",
        "ipykernel>=7",
        "nbclient>=0.11",
        "nbformat>=5",
        "httpx2>=2.16",
    ],
}

setuptools.setup(
    name="scope_jax",
    version="0.1.0",
    description="SCOPE-RL in JAX: scaffolded and quality-aware reinforcement learning of reasoning models",
    packages=setuptools.find_packages(include=["scope_jax", "scope_jax.*"]),
    package_data={"scope_jax.data": ["*.jsonl", "chains_model/*"]},
    python_requires=">=3.11",
    install_requires=[
        "jax>=0.10.2",
        "flax>=0.12.8",
        "optax>=0.2.8",
        "orbax-checkpoint>=0.12.8",
        "transformers>=5.24",
        "tokenizers>=0.23",
        "safetensors>=0.8",
        "jinja2>=3.1",
        "tensorflow-datasets>=4.9.10",
        "array_record>=0.8; platform_system == 'Linux'",
        "importlib_resources>=7",
        "sympy>=1.14",
        "math-verify>=0.9",
        "ml-collections>=1.1",
        "absl-py>=2.5",
        "jaxtyping>=0.3.11",
        "tensorboardX>=2.6.5",
        "matplotlib>=3.11",
        "numpy>=2.4",
    ],
    extras_require=extras,
)
