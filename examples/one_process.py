"""A function that runs once, with the devices of all hosts, by `backend="pathways"`.

There is one process, so nothing has to be gathered and no other process has to run the same collectives.
"""

from typing import Any


def run() -> dict[str, Any]:
    """Sum over the devices of all hosts; returns the sum, the devices and the processes."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.device_put(jnp.arange(jax.device_count()), NamedSharding(mesh, PartitionSpec("data")))
    return {"sum": int(rows.sum()), "devices": jax.device_count(), "processes": jax.process_count()}
