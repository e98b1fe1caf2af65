"""Where parameters live: one table from logical axis names to mesh axes."""

import math
from collections.abc import Mapping

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from scope_jax.qwen3.config import Config
from scope_jax.qwen3.params import Leaf, describe

Rules = Mapping[str, str | tuple[str, ...] | None]

RULES: Rules = {
    "vocab": "tensor",
    "embed": "fsdp",
    "heads": "tensor",
    "kv_heads": "tensor",
    "mlp": "tensor",
    "head_dim": None,
    "classes": None,
    "norm": None,  # vectors are small: cutting them costs more than it saves
    "layers": None,  # scanned over, so each device holds its part of every layer
}


def partition_specs(config: Config, rules: Rules = RULES) -> PyTree[PartitionSpec]:
    """The parameters' partition specs, in the layout of `params.describe`.

    Args:
      config: the architecture.
      rules: mesh axis (or axes, or None: whole) of each logical axis.

    Raises:
      ValueError: a logical axis has no rule, or one array would use a mesh axis twice; names the array.
    """

    def spec(path, leaf: Leaf) -> PartitionSpec:
        unruled = [axis for axis in leaf.axes if axis not in rules]
        if unruled:
            raise ValueError(f"{_name(path)}: the sharding rules have no entry for logical axis {unruled[0]!r}")
        used = [mesh_axis for axis in leaf.axes for mesh_axis in _mesh_axes(rules[axis])]
        twice = sorted({mesh_axis for mesh_axis in used if used.count(mesh_axis) > 1})
        if twice:
            raise ValueError(f"{_name(path)} {leaf.axes}: the sharding rules use mesh axis {twice[0]!r} twice")
        return PartitionSpec(*(rules[axis] for axis in leaf.axes))

    return jax.tree.map_with_path(spec, describe(config), is_leaf=lambda x: isinstance(x, Leaf))


def check_divisible(config: Config, mesh: Mesh, specs: PyTree[PartitionSpec]) -> None:
    """Refuses a mesh that cannot cut the parameters evenly, rather than leave an array whole and memory short.

    Args:
      config: the architecture.
      mesh: the device mesh.
      specs: the parameters' partition specs.

    Raises:
      ValueError: names the array, the logical axis with its size, and the mesh axes with theirs.
    """

    def check(path, leaf: Leaf, spec: PartitionSpec) -> None:
        for size, logical, entry in zip(leaf.shape, leaf.axes, spec, strict=True):
            axes = _mesh_axes(entry)
            absent = [axis for axis in axes if axis not in mesh.shape]
            if absent:
                raise ValueError(f"the mesh has axes {mesh.axis_names}, the sharding rules need {absent[0]!r}")
            if size % math.prod(mesh.shape[axis] for axis in axes):
                cut = " x ".join(f"{axis}={mesh.shape[axis]}" for axis in axes)
                raise ValueError(f"{_name(path)} {leaf.shape}: axis {logical!r} of size {size} cannot be cut by {cut}")

    jax.tree.map_with_path(check, describe(config), specs, is_leaf=lambda x: isinstance(x, Leaf))


def param_shardings(config: Config, mesh: Mesh, rules: Rules = RULES) -> PyTree[NamedSharding]:
    """The parameters' shardings on one mesh.

    Key/value heads that are fewer than the devices of their mesh axis stay whole on each of them, as every device needs
    some of them anyway.

    Raises:
      ValueError: the rules or the mesh do not fit the parameters; names the array.
    """
    kv_devices = math.prod(mesh.shape.get(axis, 1) for axis in _mesh_axes(rules.get("kv_heads")))
    if config.num_kv_heads < kv_devices:
        rules = {**rules, "kv_heads": None}
    specs = partition_specs(config, rules)
    check_divisible(config, mesh, specs)
    return jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs)


def _mesh_axes(entry: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)


def _name(path) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")
