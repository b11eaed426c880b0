"""Shows how libtpu compiles a reduce-scatter over a slice: `python -m benchmarks.reduce_scatters [OPTION=VALUE ...]`.

For each topology, it compiles one `jax.lax.psum_scatter` of a matrix over the devices of each slice ahead of time, with
these compiler options. Nothing runs. It needs only JAX and libtpu, so that it can be sent to their developers as is.
"""

import os
import re
import sys
from collections.abc import Mapping
from math import prod

import jax
import jax.numpy as jnp
from jax.experimental import mesh_utils, topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

TOPOLOGIES = (
    *("v5p:2x2x4", "v5p:4x4x4", "v5p:4x4x8", "tpu7x:4x4x4"),
    *("v5e:4x4", "v5e:8x16", "v5e:16x16", "v6e:4x4", "v6e:8x16", "v6e:16x16"),
)
MATRIX = (4096, 14336)
"""Shape of the matrix, in bfloat16: the gradient of a matrix of Llama-3.1-8B."""

_COLLECTIVE = re.compile(r"= \(?bf16\[([\d,]*)\]\S* .*?(all-reduce|reduce-scatter|all-gather)(?:-start)?\(")
_STRATEGY = re.compile(r'"strategy":"(\w+)"')


def program(topology: str, slices: int, options: Mapping[str, str]) -> str:
    """Return the text of the compiled program."""
    devices = topologies.get_topology_desc(topology, "tpu", num_slices=slices).devices
    own = len(devices) // slices
    if slices == 1:
        placed = mesh_utils.create_device_mesh((1, own), devices, allow_split_physical_axes=True)
    else:
        placed = mesh_utils.create_hybrid_device_mesh((1, own), (slices, 1), devices, allow_split_physical_axes=True)
    mesh = Mesh(placed, ("replica", "fsdp"))

    def scatter(gradient: jax.Array) -> jax.Array:
        return jax.lax.psum_scatter(gradient.reshape(own, -1, MATRIX[1]), "fsdp", scatter_dimension=0)

    whole, rows = PartitionSpec(), PartitionSpec("fsdp")
    over_mesh = jax.shard_map(scatter, mesh=mesh, in_specs=whole, out_specs=rows, check_vma=False)
    gradient = jax.ShapeDtypeStruct(MATRIX, jnp.bfloat16, sharding=NamedSharding(mesh, whole))
    return jax.jit(over_mesh).lower(gradient).compile(dict(options)).as_text() or ""


def collectives(text: str) -> list[str]:
    """Return the kind, the size of the result in MB and the strategy of each collective in the program."""
    found: list[str] = []
    for line in text.splitlines():
        if collective := _COLLECTIVE.search(line):
            megabytes = jnp.bfloat16.dtype.itemsize * prod(map(int, collective[1].split(","))) / 1e6
            strategy = _STRATEGY.search(line)
            found.append(f"{collective[2]} {megabytes:.1f}{f' {strategy[1]}' if strategy else ''}")
    return found


def main() -> None:
    """Print a row for each topology."""
    os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1", "TPU_LOG_DIR": "disabled"}
    options = dict(argument.split("=", 1) for argument in sys.argv[1:])
    print("| slice | becomes, MB of its result, libtpu's strategy | on each of two slices |")
    print("|---|---|---|")
    for topology in TOPOLOGIES:
        found = [collectives(program(topology, slices, options)) for slices in (1, 2)]
        print(f"| {topology} | {' | '.join(map(', '.join, found))} |", flush=True)


if __name__ == "__main__":
    main()
