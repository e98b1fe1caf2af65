"""What a checkpoint keeps, and which checkpoints are never loaded."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from scope_jax.checkpoints import Checkpoints, check_workdir, state_bytes


def make_state(seed=0):
    """Parameters in two dtypes, the optimizer's nested state, a typed key and a counter."""
    key = jax.random.key(seed)
    params = {
        "embed": jax.random.normal(key, (16, 6), jnp.bfloat16) / 3,
        "layers": {"norm": jax.random.normal(key, (2, 6)) / 3, "wq": jax.random.normal(key, (2, 6, 8)) / 3},
    }
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3)).init(params)
    return {"params": params, "optimizer": optimizer, "key": jax.random.fold_in(key, 7), "step": jnp.int32(3)}


def bits(tree):
    """Every array as raw bytes, so that -0.0, NaN and the last bit count."""
    plain = jax.tree.map(lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x, tree)
    return {jax.tree_util.keystr(p): np.asarray(x).tobytes() for p, x in jax.tree_util.tree_leaves_with_path(plain)}


def saved(folder, steps=(1, 2), **options):
    """A folder with a checkpoint of `make_state(step)` for each step."""
    with Checkpoints(folder, **options) as checkpoints:
        for step in steps:
            checkpoints.save(step, make_state(step), {"stage": "asr", "position": 10 * step})
    return folder


def data_files(folder):
    """The files of a checkpoint that hold arrays."""
    return [path for path in pathlib.Path(folder, "state").glob("**/d/*") if path.is_file()]


def test_a_checkpoint_comes_back_bit_for_bit(tmp_path):
    state = make_state() | {"odd": jnp.float32([-0.0, jnp.nan, jnp.inf, 1e-45])}
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(5, state, {"stage": "qpr", "position": 42, "names": ["a", "b"]})
    target = jax.tree.map(jnp.zeros_like, state | {"key": None}) | {"key": jax.random.key(99)}
    restored = Checkpoints(tmp_path).restore(target)
    assert restored.step == 5 and restored.meta == {"stage": "qpr", "position": 42, "names": ["a", "b"]}
    assert bits(restored.state) == bits(state)
    assert jax.tree.structure(restored.state) == jax.tree.structure(state)
    assert [x.dtype for x in jax.tree.leaves(restored.state)] == [x.dtype for x in jax.tree.leaves(state)]
    assert np.array_equal(jax.random.bits(restored.state["key"], (4,)), jax.random.bits(state["key"], (4,)))


def test_a_checkpoint_is_restored_onto_the_sharding_of_the_target(tmp_path):
    saved(tmp_path, [1])
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    whole, rows = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
    shapes = jax.eval_shape(make_state)
    target = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=rows if x.shape == (16, 6) else whole), shapes
    )
    restored = Checkpoints(tmp_path).restore(target).state
    assert bits(restored) == bits(make_state(1))
    assert restored["params"]["embed"].sharding.is_equivalent_to(rows, 2)
    assert len(restored["params"]["embed"].addressable_shards) == 8
    assert restored["params"]["layers"]["wq"].sharding.is_equivalent_to(whole, 3)
    assert restored["key"].sharding.is_equivalent_to(whole, 0)


def test_a_state_saved_from_eight_devices_is_restored_onto_one(tmp_path):
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    x = jnp.arange(16.0).reshape(16, 1)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, {"x": jax.device_put(x, NamedSharding(mesh, PartitionSpec("data")))}, {})
    restored = Checkpoints(tmp_path).restore({"x": jax.ShapeDtypeStruct(x.shape, x.dtype)}).state["x"]
    assert np.array_equal(restored, x) and len(restored.devices()) == 1


def test_a_new_folder_has_nothing_to_restore(tmp_path):
    assert Checkpoints(tmp_path / "new").restore(make_state()) is None


def test_the_state_may_be_donated_while_it_is_saved_in_the_background(tmp_path):
    state = {"x": jax.random.normal(jax.random.key(0), (500, 1000))}
    before = np.array(state["x"])
    overwrite = jax.jit(lambda s: jax.tree.map(lambda x: x * 0 - 7, s), donate_argnums=0)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state, {})
        state = jax.block_until_ready(overwrite(state))
    assert np.array_equal(Checkpoints(tmp_path).restore(state).state["x"], before)


def test_the_most_recent_and_every_kth_checkpoint_are_kept(tmp_path):
    saved(tmp_path, range(1, 10), keep=2, keep_every=4)
    assert Checkpoints(tmp_path).steps() == [4, 8, 9]


def test_keeping_no_checkpoint_is_refused(tmp_path):
    with pytest.raises(ValueError, match="keep=0"):
        Checkpoints(tmp_path, keep=0)


def test_saving_a_step_twice_is_an_error_and_not_silence(tmp_path):
    with Checkpoints(saved(tmp_path)) as checkpoints:
        with pytest.raises(ValueError, match="step 2 is not above the latest checkpoint, 2"):
            checkpoints.save(2, make_state(), {})


def cut_in_half(folder):
    path = max(data_files(folder), key=lambda path: path.stat().st_size)
    os.truncate(path, path.stat().st_size // 2)


def empty_files(folder):
    for path in data_files(folder):
        os.truncate(path, 0)


def remove_arrays(folder):
    shutil.rmtree(folder / "state")


def cut_the_meta(folder):
    os.truncate(folder / "meta" / "metadata", 5)


def overwrite_bytes(folder):
    for path in data_files(folder):
        path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize("damage", [cut_in_half, empty_files, remove_arrays, cut_the_meta, overwrite_bytes])
def test_a_broken_checkpoint_is_set_aside_with_a_warning_and_the_one_before_is_loaded(tmp_path, caplog, damage):
    saved(tmp_path)
    damage(tmp_path / "2")
    with Checkpoints(tmp_path) as checkpoints:
        restored = checkpoints.restore(make_state())
        assert restored.step == 1 and bits(restored.state) == bits(make_state(1))
        assert "checkpoint 2 is broken" in caplog.text and "broken-2" in caplog.text
        checkpoints.save(2, make_state(8), {})  # its step can be saved again
    assert bits(Checkpoints(tmp_path).restore(make_state()).state) == bits(make_state(8))


def test_where_no_checkpoint_can_be_read_training_does_not_silently_start_again(tmp_path):
    saved(tmp_path)
    cut_the_meta(tmp_path / "1")
    cut_in_half(tmp_path / "2")
    with pytest.raises(RuntimeError, match="no checkpoint can be read"):
        Checkpoints(tmp_path).restore(make_state())
    assert Checkpoints(tmp_path).steps() == [1, 2]


def test_a_temporary_folder_of_a_killed_save_is_never_loaded_and_goes_with_the_next_save(tmp_path):
    saved(tmp_path)
    unfinished = tmp_path / "3.orbax-checkpoint-tmp-17"
    shutil.copytree(tmp_path / "2", unfinished)
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.restore(make_state()).step == 2
        checkpoints.save(3, make_state(3), {})
        assert not unfinished.exists()


def test_a_checkpoint_of_another_model_is_refused_with_the_names_of_its_arrays(tmp_path):
    saved(tmp_path)
    other = make_state()
    other["params"]["layers"]["wq"] = jnp.zeros((2, 6, 10))
    with pytest.raises(ValueError, match=r"\['wq'\]: saved float32\[2, 6, 8\], now float32\[2, 6, 10\]"):
        Checkpoints(tmp_path).restore(other)
    del other["params"]["layers"]["wq"]
    with pytest.raises(ValueError, match="now absent"):
        Checkpoints(tmp_path).restore(other)
    assert Checkpoints(tmp_path).steps() == [1, 2]


def test_a_failure_in_the_background_is_raised_by_the_next_call(tmp_path, monkeypatch):
    with Checkpoints(tmp_path) as checkpoints:
        real = checkpoints._manager.check_for_errors
        monkeypatch.setattr(
            checkpoints._manager, "check_for_errors", lambda: (_ for _ in ()).throw(OSError("disk full"))
        )
        for call in (checkpoints.check, checkpoints.wait, lambda: checkpoints.save(1, make_state(), {})):
            with pytest.raises(OSError, match="disk full"):
                call()
        monkeypatch.setattr(checkpoints._manager, "check_for_errors", real)


SAVE_FOR_EVER = """
import sys, jax.numpy as jnp
from scope_jax.checkpoints import Checkpoints
checkpoints = Checkpoints(sys.argv[1])
target = {"x": jnp.zeros((300, 1000)), "y": jnp.zeros(3)}
found = checkpoints.restore(target)
step = found.step if found else 0
if found:
    assert (found.state["x"] == step).all() and (found.state["y"] == step).all() and found.meta == {"position": step}
print("start", step, flush=True)
while True:
    step += 1
    checkpoints.save(step, {name: x + step for name, x in target.items()}, {"position": step})
    print(step, flush=True)
"""


@pytest.mark.slow
def test_a_process_killed_while_it_saves_leaves_only_whole_checkpoints(tmp_path):
    """SIGKILL at moments that differ: each new process reads a whole checkpoint and goes on from it."""
    last = 0
    for delay in (0.02, 0.11, 0.23):
        process = subprocess.Popen([sys.executable, "-c", SAVE_FOR_EVER, tmp_path], stdout=subprocess.PIPE, text=True)
        word, start = process.stdout.readline().split()
        assert word == "start" and int(start) >= last
        saves = [int(process.stdout.readline()) for _ in range(3)]
        last = saves[1]  # the third may still be on its way; the second was waited for
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    target = {"x": jnp.zeros((300, 1000)), "y": jnp.zeros(3)}
    found = Checkpoints(tmp_path).restore(target)
    assert found.step >= last and (found.state["x"] == found.step).all() and found.meta == {"position": found.step}


def test_the_size_of_a_checkpoint_counts_every_array():
    State = namedtuple("State", "a b key")
    state = State(jnp.zeros((3, 5), jnp.bfloat16), jnp.zeros(7), jax.random.key(0))
    assert state_bytes(state) == 2 * 15 + 4 * 7 + 8


def test_a_workdir_is_made_and_left_empty(tmp_path):
    check_workdir(tmp_path / "a" / "b", needed_bytes=1000)
    assert list((tmp_path / "a" / "b").iterdir()) == []


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/scope_jax"])
def test_a_workdir_that_cannot_be_written_is_reported_with_its_name(tmp_path, place):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="cannot be written: .*Choose another --workdir"):
        check_workdir(tmp_path / place)


def test_a_full_disk_is_reported_before_training(monkeypatch, tmp_path):
    with pytest.raises(OSError, match=r"GiB free; its checkpoints need 1073741824.00 GiB.*config.checkpoint.keep"):
        check_workdir(tmp_path, needed_bytes=2**60)

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("scope_jax.checkpoints.os.fsync", full)
    with pytest.raises(OSError, match="cannot be written: No space left on device"):
        check_workdir(tmp_path)
    assert list(tmp_path.iterdir()) == []
