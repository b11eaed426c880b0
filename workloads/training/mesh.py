"""Builds the device mesh, which determines each device's share of the batch, the layers and the weights.

`fsdp` and `tensor` are always inside a slice. How arrays are split over the axes is in `layout`. The record for the
pictures of the mesh (`workloads.report.mesh_text`) is made here from JAX's mesh and shardings.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import jax
import numpy as np
from etils import epath
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding

from workloads.report.mesh_text import PlacedArray, Placement, hosts_in_order, mesh_picture
from workloads.spec import MeshSpec, SliceSpec
from workloads.training.failures import InvalidSpec

REPLICA, STAGE, FSDP, TENSOR = AXES = ("replica", "stage", "fsdp", "tensor")
"""Axes from outer to inner, as in MeshSpec. The first is over slices (DCN), the last two are within a slice (ICI), and
`stage` may be either."""

DATA_AXES = (REPLICA, FSDP)
"""Axes that sequences are distributed over."""


class Device(Protocol):
    """The attributes of a `jax.Device` that the mesh uses. `platform` is `tpu` or `cpu`."""

    @property
    def id(self) -> int: ...

    @property
    def process_index(self) -> int: ...

    @property
    def platform(self) -> str: ...


def build_mesh(mesh: MeshSpec, slices: SliceSpec, devices: Sequence[Device]) -> Mesh:
    """Return the mesh of `devices`, which must be all devices of the job.

    Raises:
        InvalidSpec: the number of devices differs from that of the mesh.
    """
    return Mesh(arrange(mesh, slices, devices), AXES, axis_types=(AxisType.Auto,) * len(AXES))


def arrange(mesh: MeshSpec, slices: SliceSpec, devices: Sequence[Device]) -> np.ndarray:
    """Return `devices` as an array [replica, stage, fsdp, tensor]."""
    if len(devices) != mesh.devices:
        raise InvalidSpec(
            f"mesh {mesh} needs {mesh.devices} devices, but {len(devices)} joined;"
            f" set the mesh to the {slices.count} slices of {slices.topology} that run"
        )
    if devices[0].platform != "tpu":
        return _in_process_order(devices).reshape(tuple(mesh.sizes.values()))
    over_slices, within_slice = _factors(mesh, slices)
    if slices.count == 1:
        return mesh_utils.create_device_mesh(within_slice, devices, allow_split_physical_axes=True)
    return mesh_utils.create_hybrid_device_mesh(within_slice, over_slices, devices, allow_split_physical_axes=True)


def _factors(mesh: MeshSpec, slices: SliceSpec) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return each axis as a part over slices times a part within a slice."""
    groups = slices.devices_per_slice // (mesh.fsdp * mesh.tensor)
    stages = max(mesh.stage // groups, 1)
    over_slices = (slices.count // stages, stages, 1, 1)
    return over_slices, tuple(size // outer for size, outer in zip(mesh.sizes.values(), over_slices, strict=True))


def _in_process_order(devices: Sequence[Device]) -> np.ndarray:
    """Sort devices by process. CPU devices have no slice, but hosts of a slice have consecutive process indices."""
    array = np.empty(len(devices), dtype=object)
    array[:] = sorted(devices, key=lambda device: (device.process_index, device.id))
    return array


def show_placement(placement: Placement, record: epath.Path) -> None:
    """Print the picture, and write its data to `record` for the report."""
    print(mesh_picture(placement), flush=True)
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(placement.model_dump_json())


def placement(spec: MeshSpec, slices: SliceSpec, mesh: Mesh, state: Any) -> Placement:
    """Return the positions of the devices of `mesh` and the arrays of `state`. Only shapes and shardings are read."""
    hosts = tuple(device.process_index for device in mesh.devices.flat)
    if set(hosts) != set(range(slices.total_hosts)):
        # One process has the devices of all of them.
        hosts = hosts_in_order(slices)
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return Placement(
        mesh=spec,
        slices=slices,
        hosts=hosts,
        arrays=tuple(_placed_array(path, leaf) for path, leaf in leaves),
    )


def _placed_array(path: Any, leaf: Any) -> PlacedArray:
    sharding = leaf.sharding
    if not isinstance(sharding, NamedSharding):
        raise TypeError(f"{jax.tree_util.keystr(path)} must have a NamedSharding, got {sharding}")
    return PlacedArray(
        name=jax.tree_util.keystr(path, simple=True, separator="."),
        shape=leaf.shape,
        dtype=str(leaf.dtype),
        element_bytes=leaf.dtype.itemsize,
        split=tuple(axes_of(entry) for entry in sharding.spec),
    )


def axes_of(entry: Any) -> tuple[str, ...]:
    """Return the axes in one entry of a PartitionSpec."""
    return (entry,) if isinstance(entry, str) else tuple(entry or ())
