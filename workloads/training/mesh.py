"""The device mesh: which device holds which share of the batch, the layers and the weights.

Owns the axis names and the rule that `fsdp` and `tensor` never leave their slice. Says nothing about how
arrays are split over the axes.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh

from workloads.spec import MeshSpec, SliceSpec
from workloads.training.failures import InvalidSpec

REPLICA, STAGE, FSDP, TENSOR = AXES = ("replica", "stage", "fsdp", "tensor")
"""Outer to inner, as in MeshSpec: the first over slices (DCN), the last two within one (ICI), `stage` as it fits."""

DATA_AXES = (REPLICA, FSDP)
"""Sequences are dealt over these."""


class Device(Protocol):
    """What the mesh needs to know of a `jax.Device`."""

    @property
    def id(self) -> int:
        """Unique in the job."""
        ...

    @property
    def process_index(self) -> int:
        """Process that the device belongs to."""
        ...

    @property
    def platform(self) -> str:
        """`tpu` or `cpu`."""
        ...


def build_mesh(mesh: MeshSpec, slices: SliceSpec, devices: Sequence[Device]) -> Mesh:
    """The mesh of `devices`, which are all devices of the job.

    Raises:
        InvalidSpec: there are more or fewer devices than the mesh has places.
    """
    return Mesh(arrange(mesh, slices, devices), AXES, axis_types=(AxisType.Auto,) * len(AXES))


def arrange(mesh: MeshSpec, slices: SliceSpec, devices: Sequence[Device]) -> np.ndarray:
    """`devices` as an array [replica, stage, fsdp, tensor]."""
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
    """Each axis as a part over slices times a part within one."""
    groups = slices.devices_per_slice // (mesh.fsdp * mesh.tensor)
    stages = max(mesh.stage // groups, 1)
    over_slices = (slices.count // stages, stages, 1, 1)
    return over_slices, tuple(size // outer for size, outer in zip(mesh.sizes.values(), over_slices, strict=True))


def _in_process_order(devices: Sequence[Device]) -> np.ndarray:
    """CPU devices carry no slice, so hosts of a slice are known by their consecutive process indices."""
    array = np.empty(len(devices), dtype=object)
    array[:] = sorted(devices, key=lambda device: (device.process_index, device.id))
    return array
