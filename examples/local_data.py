"""Each process loads its own rows; together they are one global array.

`jax.make_array_from_process_local_data` takes what this process has read and the sharding of the whole. No process
ever holds all rows, and the function under `jax.jit` is written as if there were one array.
"""

from typing import Any


def run(rows_per_device: int = 4) -> dict[str, Any]:
    """The sum of rows that no process has all of; returns it beside what it must be."""
    import jax
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    by_rows = NamedSharding(mesh, PartitionSpec("data"))

    mine = rows_per_device * jax.local_device_count()
    first = mine * jax.process_index()  # of a file, say, of which each process reads its part
    local = np.arange(first, first + mine, dtype=np.float32)

    rows = jax.make_array_from_process_local_data(by_rows, local)
    every = rows_per_device * jax.device_count()
    print(f"process 0 read {local.size} of {rows.size} rows")
    return {"sum": float(jax.jit(lambda x: x.sum())(rows)), "expected": every * (every - 1) / 2}
