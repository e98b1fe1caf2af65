import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from scope_jax import qwen3
from scope_jax.meshes import batch_sharding, make_mesh
from scope_jax.qwen3.params import Leaf, describe
from scope_jax.qwen3.sharding import RULES, param_shardings


@pytest.fixture(scope="module")
def config(tiny_config):
    """Like the tiny config, in sizes that eight devices can cut."""
    return dataclasses.replace(tiny_config, vocab_size=64, d_model=16)


@pytest.fixture(scope="module")
def single(config):
    """Parameters, a packed and padded batch, and the single-device results."""
    rng = np.random.default_rng(0)
    params = jax.tree.map(
        lambda leaf: (0.2 * rng.normal(size=leaf.shape) + (leaf.init == "ones")).astype(np.float32),
        describe(config),
        is_leaf=lambda x: isinstance(x, Leaf),
    )
    segment_ids = np.array([[0, 1, 1, 1, 2, 2, 2, 2], [1, 1, 1, 1, 1, 0, 0, 0]] * 4, np.int32)
    batch = {"tokens": rng.integers(64, size=(8, 8)).astype(np.int32), "segment_ids": segment_ids}
    return params, batch, jax.jit(loss_and_gradient, static_argnames="config")(params, batch, config)


def loss_and_gradient(params, batch, config):
    def loss(params):
        logits = qwen3.forward(params, config, batch["tokens"], segment_ids=batch["segment_ids"])
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), batch["tokens"][..., None], -1)[..., 0]
        return -jnp.mean(picked * (batch["segment_ids"] > 0)), logits

    return jax.value_and_grad(loss, has_aux=True)(params)


@pytest.mark.parametrize("sizes", ["data=8", "fsdp=8", "data=2,fsdp=2,tensor=2"])
def test_a_sharded_step_equals_one_device(config, single, sizes):
    params, batch, expected = single
    mesh = make_mesh(sizes)
    params = jax.device_put(params, param_shardings(config, mesh))
    batch = jax.device_put(batch, batch_sharding(mesh))
    assert len(batch["tokens"].sharding.device_set) == 8
    result = jax.jit(loss_and_gradient, static_argnames="config")(params, batch, config)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), result, expected)


def test_a_sharded_step_of_a_model_with_biases_equals_one_device(config, single):
    qwen2 = dataclasses.replace(config, qk_norm=False, qkv_bias=True)
    params, batch, _ = single
    rng = np.random.default_rng(1)
    kept = {name: leaf for name, leaf in params["layers"].items() if name not in ("q_norm", "k_norm")}
    shapes = {"q_bias": (2, 4, 6), "k_bias": (2, 2, 6), "v_bias": (2, 2, 6)}
    biases = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    params = {**params, "layers": kept | biases}
    step = jax.jit(loss_and_gradient, static_argnames="config")
    expected = step(params, batch, qwen2)
    mesh = make_mesh("data=2,fsdp=2,tensor=2")
    placed = jax.device_put(params, param_shardings(qwen2, mesh))
    assert placed["layers"]["q_bias"].addressable_shards[0].data.shape == (2, 2, 6)
    assert placed["layers"]["v_bias"].addressable_shards[0].data.shape == (2, 1, 6)
    result = step(placed, jax.device_put(batch, batch_sharding(mesh)), qwen2)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), result, expected)


def test_every_parameter_has_a_spec_by_the_rules(tiny_config):
    specs = qwen3.partition_specs(tiny_config)
    assert jax.tree.structure(specs) == jax.tree.structure(
        jax.tree.map(lambda leaf: 0, describe(tiny_config), is_leaf=lambda x: isinstance(x, Leaf))
    )
    assert specs["embed"] == PartitionSpec("tensor", "fsdp")
    assert specs["layers"]["q"] == PartitionSpec(None, "fsdp", "tensor", None)
    assert specs["layers"]["o"] == PartitionSpec(None, "tensor", None, "fsdp")
    assert specs["lm_head"] == PartitionSpec("fsdp", "tensor")


def test_rules_that_use_a_mesh_axis_twice_in_one_array_are_refused(tiny_config):
    with pytest.raises(ValueError, match=r"embed \('vocab', 'embed'\).*mesh axis 'fsdp' twice"):
        qwen3.partition_specs(tiny_config, {**RULES, "vocab": ("tensor", "fsdp")})


def test_rules_without_a_logical_axis_are_refused(tiny_config):
    rules = {axis: entry for axis, entry in RULES.items() if axis != "mlp"}
    with pytest.raises(ValueError, match="layers/down: .* no entry for logical axis 'mlp'"):
        qwen3.partition_specs(tiny_config, rules)


def test_a_mesh_that_does_not_divide_an_axis_is_refused_with_names_and_sizes(tiny_config):
    """An axis that does not divide is never left whole in silence."""
    with pytest.raises(ValueError, match=r"embed \(61, 20\): axis 'vocab' of size 61 cannot be cut by tensor=2"):
        param_shardings(tiny_config, make_mesh("data=4,tensor=2"))
    with pytest.raises(ValueError, match="axis 'embed' of size 20 cannot be cut by fsdp=8"):
        param_shardings(tiny_config, make_mesh("fsdp=8"))


def test_a_mesh_without_the_axes_of_the_rules_is_refused(config):
    mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    with pytest.raises(ValueError, match="the sharding rules need 'tensor'"):
        param_shardings(config, mesh)


def test_key_value_heads_fewer_than_their_mesh_axis_stay_whole(config):
    shardings = param_shardings(config, make_mesh("data=2,tensor=4"))
    assert shardings["layers"]["k"].spec == PartitionSpec(None, "fsdp", None, None)
    assert shardings["layers"]["q"].spec == PartitionSpec(None, "fsdp", "tensor", None)
    qwen2 = param_shardings(dataclasses.replace(config, qk_norm=False, qkv_bias=True), make_mesh("data=2,tensor=4"))
    assert qwen2["layers"]["k_bias"].spec == PartitionSpec(None, None, None)
    assert qwen2["layers"]["q_bias"].spec == PartitionSpec(None, "tensor", None)


def test_published_sizes_divide_over_a_pod():
    config = qwen3.Config(151936, 4096, 36, 32, 8, 128, 12288)
    mesh = jax.sharding.AbstractMesh((1, 32, 16), ("data", "fsdp", "tensor"))
    assert param_shardings(config, mesh)["layers"]["k"].spec == PartitionSpec(None, "fsdp", None, None)
