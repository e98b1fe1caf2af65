import os
import socket
import subprocess
import sys

import pytest

from scope_jax import qwen3

PROCESS = """
import sys, jax
address, number, source, target = sys.argv[1:]
jax.distributed.initialize(address, 2, int(number))
from scope_jax import qwen3
from scope_jax.meshes import make_mesh
config, params = qwen3.load(source, mesh=make_mesh("fsdp=2,tensor=2"))
assert not params["layers"]["q"].is_fully_addressable
qwen3.save(target, config, params)
"""


@pytest.mark.slow
def test_two_processes_load_their_parts_and_save_the_whole(tmp_path, tiny_config, tiny_params):
    config = qwen3.Config(**{**vars(tiny_config), "vocab_size": 60})
    params = {**tiny_params, "embed": tiny_params["embed"][:60], "lm_head": tiny_params["lm_head"][:, :60]}
    qwen3.save(tmp_path / "one", config, params)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo"}
    command = [sys.executable, "-c", PROCESS, address]
    folders = [str(tmp_path / "one"), str(tmp_path / "two")]
    processes = [
        subprocess.Popen([*command, number, *folders], env={**os.environ, **flags}, stderr=subprocess.PIPE, text=True)
        for number in ("0", "1")
    ]
    try:
        for process in processes:
            _, errors = process.communicate(timeout=240)
            assert process.returncode == 0, errors
    finally:
        for process in processes:
            process.kill()
    first, second = (tmp_path / name / "model.safetensors" for name in ("one", "two"))
    assert first.read_bytes() == second.read_bytes()
