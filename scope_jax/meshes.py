"""Device meshes: three axes, always all there, so that one rules table serves a laptop and a pod."""

import difflib
import math
from collections.abc import Mapping, Sequence

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

AXES = ("data", "fsdp", "tensor")  # copies of the model, shards of its parameters, shards of its matrix products
BATCH_AXES = ("data", "fsdp")  # the batch is cut over both


def make_mesh(sizes: Mapping[str, int] | str = "data=-1", devices: Sequence[jax.Device] | None = None) -> Mesh:
    """A mesh over the axes `data`, `fsdp` and `tensor`.

    Args:
      sizes: devices along each axis, as a mapping `{"data": 8}` or as text "data=2,fsdp=2,tensor=2". An axis left out
        has size 1; one axis may be -1 and takes the devices that remain.
      devices: all devices of all processes unless given.

    Raises:
      ValueError: an unknown or repeated axis, a size that is no positive integer, or sizes that do not multiply to the
        number of devices.
    """
    devices = list(jax.devices() if devices is None else devices)
    pairs = _parse(sizes) if isinstance(sizes, str) else list(sizes.items())
    given: dict[str, int] = {}
    for axis, size in pairs:
        if axis not in AXES:
            near = difflib.get_close_matches(axis, AXES, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"mesh axis {axis!r} is unknown, the axes are {', '.join(AXES)}{hint}")
        if axis in given:
            raise ValueError(f"mesh axis {axis!r} is given twice")
        if not isinstance(size, int) or (size < 1 and size != -1):
            raise ValueError(f"mesh axis {axis!r} has size {size!r}; give a positive integer, or -1 for the rest")
        given[axis] = size
    shape = _fill([given.get(axis, 1) for axis in AXES], len(devices))
    if math.prod(shape) != len(devices):
        product = " x ".join(f"{axis}={size}" for axis, size in zip(AXES, shape, strict=True))
        raise ValueError(
            f"mesh {product} needs {math.prod(shape)} devices, there are {len(devices)}; "
            "set --config.mesh, for example data=-1 for all of them"
        )
    # Auto: the compiler propagates shardings; newer versions of jax default to explicit axes.
    return jax.make_mesh(tuple(shape), AXES, axis_types=(AxisType.Auto,) * len(AXES), devices=devices)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Sharding of an array whose leading axis is the batch: rows over `data` and `fsdp`, the rest whole."""
    return NamedSharding(mesh, PartitionSpec(BATCH_AXES))


def batch_shards(mesh: Mesh) -> int:
    """Parts that `batch_sharding` cuts the rows into."""
    return math.prod(mesh.shape[axis] for axis in BATCH_AXES)


def _parse(text: str) -> list[tuple[str, int]]:
    pairs = []
    for part in text.split(","):
        axis, equals, size = (piece.strip() for piece in part.partition("="))
        if not equals or not size.lstrip("-").isdecimal():
            raise ValueError(f"mesh {text!r}: cannot read {part.strip()!r}; write it like 'data=2,fsdp=2,tensor=2'")
        pairs.append((axis, int(size)))
    return pairs


def _fill(shape: list[int], devices: int) -> list[int]:
    """Replaces the one -1 by the devices that the other axes leave."""
    if shape.count(-1) > 1:
        raise ValueError("mesh: only one axis may be -1")
    known = math.prod(size for size in shape if size != -1)
    if -1 in shape and devices % known:
        raise ValueError(f"mesh: {devices} devices cannot be divided by the other axes' {known}")
    return [devices // known if size == -1 else size for size in shape]
