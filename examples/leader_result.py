"""What a call returns is what process 0 returns; what lies on other processes is gathered before, by all of them.

A sharded array has parts that process 0 does not see. `process_allgather` is a collective: every process calls it, and
each then has the whole.
"""

from typing import Any


def run() -> dict[str, Any]:
    """Rows of all processes, and which process speaks."""
    import jax
    import numpy as np
    from jax.experimental.multihost_utils import process_allgather
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    local = np.full(jax.local_device_count(), jax.process_index())
    rows = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("data")), local)
    whole = process_allgather(rows, tiled=True)
    return {"rows": [int(row) for row in whole], "process": jax.process_index(), "local": jax.local_device_count()}
