"""The device mesh: which device holds which share of the batch and of the weights.

Owns the axis names and the rule that an `fsdp` group never leaves its slice. Says nothing about how
arrays are split over the axes.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh

from workloads.spec import MeshSpec, SliceSpec
from workloads.training.failures import InvalidSpec

REPLICA = "replica"
"""Outer axis, between slices (DCN)."""

FSDP = "fsdp"
"""Inner axis, within a slice (ICI)."""

AXES = (REPLICA, FSDP)


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
    return Mesh(arrange(mesh, slices, devices), AXES, axis_types=(AxisType.Auto, AxisType.Auto))


def arrange(mesh: MeshSpec, slices: SliceSpec, devices: Sequence[Device]) -> np.ndarray:
    """`devices` as an array [replica, fsdp]."""
    if len(devices) != mesh.replica * mesh.fsdp:
        raise InvalidSpec(
            f"mesh: replica {mesh.replica} x fsdp {mesh.fsdp} needs {mesh.replica * mesh.fsdp} devices,"
            f" but {len(devices)} joined; set the mesh to the {slices.count} slices of {slices.topology} that run"
        )
    if devices[0].platform != "tpu":
        return _in_process_order(devices).reshape(mesh.replica, mesh.fsdp)
    within_slice = (mesh.replica // slices.count, mesh.fsdp)
    if slices.count == 1:
        return mesh_utils.create_device_mesh(within_slice, devices, allow_split_physical_axes=True)
    return mesh_utils.create_hybrid_device_mesh(
        within_slice, (slices.count, 1), devices, allow_split_physical_axes=True
    )


def _in_process_order(devices: Sequence[Device]) -> np.ndarray:
    """CPU devices carry no slice, so hosts of a slice are known by their consecutive process indices."""
    array = np.empty(len(devices), dtype=object)
    array[:] = sorted(devices, key=lambda device: (device.process_index, device.id))
    return array
