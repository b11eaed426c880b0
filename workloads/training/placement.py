"""What the pictures of the mesh are drawn from, as the mesh and the state of this start are.

Owns the translation from JAX's mesh and shardings; the record is `workloads.report.placement`.
"""

from typing import Any

import jax
from etils import epath
from jax.sharding import Mesh, NamedSharding

from workloads.report.mesh_text import mesh_picture
from workloads.report.placement import PlacedArray, Placement, hosts_in_order
from workloads.spec import MeshSpec, SliceSpec


def show_placement(placement: Placement, record: epath.Path) -> None:
    """Print the picture, and keep at `record` what the report draws it from."""
    print(mesh_picture(placement), flush=True)
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(placement.model_dump_json())


def placement(spec: MeshSpec, slices: SliceSpec, mesh: Mesh, state: Any) -> Placement:
    """Where the devices of `mesh` and the arrays of `state` are; of its leaves only shape and sharding are read."""
    hosts = tuple(device.process_index for device in mesh.devices.flat)
    if set(hosts) != set(range(slices.total_hosts)):
        # One process stands in for all of them.
        hosts = hosts_in_order(slices)
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return Placement(
        mesh=spec,
        slices=slices,
        hosts=hosts,
        arrays=tuple(_placed(path, leaf) for path, leaf in leaves),
    )


def _placed(path: Any, leaf: Any) -> PlacedArray:
    sharding = leaf.sharding
    if not isinstance(sharding, NamedSharding):
        raise TypeError(f"{jax.tree_util.keystr(path)} must have a NamedSharding, got {sharding}")
    return PlacedArray(
        name=jax.tree_util.keystr(path, simple=True, separator="."),
        shape=leaf.shape,
        dtype=str(leaf.dtype),
        element_bytes=leaf.dtype.itemsize,
        split=tuple(_axes(entry) for entry in sharding.spec),
    )


def _axes(entry: Any) -> tuple[str, ...]:
    if entry is None:
        return ()
    return (entry,) if isinstance(entry, str) else tuple(entry)
