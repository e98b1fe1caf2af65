import jax
import pytest
from jax.sharding import AxisType, PartitionSpec

from scope_jax.meshes import batch_sharding, make_mesh


@pytest.mark.parametrize(
    ("sizes", "shape"),
    [
        ({"data": 8}, (8, 1, 1)),
        ("data=2,fsdp=2,tensor=2", (2, 2, 2)),
        (" tensor = 2, data=4 ", (4, 1, 2)),
        ({"fsdp": -1, "tensor": 2}, (1, 4, 2)),
        ("data=-1", (8, 1, 1)),
    ],
)
def test_axes_left_out_have_size_one_and_minus_one_takes_the_rest(sizes, shape):
    mesh = make_mesh(sizes)
    assert mesh.axis_names == ("data", "fsdp", "tensor")
    assert mesh.devices.shape == shape
    assert set(mesh.axis_types) == {AxisType.Auto}


def test_a_mesh_can_use_some_of_the_devices():
    mesh = make_mesh("fsdp=2", devices=jax.devices()[:2])
    assert mesh.devices.size == 2


def test_the_batch_is_cut_over_data_and_fsdp():
    mesh = make_mesh("data=2,fsdp=2,tensor=2")
    assert batch_sharding(mesh).spec == PartitionSpec(("data", "fsdp"))
    assert batch_sharding(mesh).shard_shape((8, 5)) == (2, 5)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ("data=4", "data=4 x fsdp=1 x tensor=1 needs 4 devices, there are 8"),
        ({"data": 16}, "needs 16 devices, there are 8"),
        ("data=-1,tensor=3", "8 devices cannot be divided by the other axes' 3"),
        ("data=-1,fsdp=-1", "only one axis may be -1"),
        ("dta=8", "'dta' is unknown.*did you mean 'data'"),
        ("data=2,data=4", "'data' is given twice"),
        ("data:8", "cannot read 'data:8'"),
        ("data=two", "cannot read 'data=two'"),
        ("", "cannot read ''"),
        ({"data": 0}, "size 0; give a positive integer"),
        ({"data": 8.0}, "size 8.0; give a positive integer"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_with_the_reason(sizes, message):
    with pytest.raises(ValueError, match=message):
        make_mesh(sizes)
