"""A last batch that does not divide over the devices is padded, and the padding weighs nothing.

Every batch has the same shape, or each process would compile again, and a shard without rows cannot be. The mean is the
sum of the weighted losses over the sum of the weights, both over all processes: a mean of the processes' means would
count the rows of a short shard more than others.
"""

from typing import Any


def run(rows: int = 21, batch: int = 8) -> dict[str, Any]:
    """The mean over rows that do not divide; returns it beside what it must be."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    by_rows = NamedSharding(mesh, PartitionSpec("data"))
    # The same number on every process, and a multiple of the devices, whatever was asked for.
    per_process = -(-batch // jax.device_count()) * jax.local_device_count()
    every = per_process * jax.process_count()

    @jax.jit
    def add(total: jax.Array, x: jax.Array, weight: jax.Array) -> jax.Array:
        return total + jnp.stack([jnp.sum(weight * x**2), jnp.sum(weight)])

    total = jnp.zeros(2)
    for start in range(0, rows, every):
        mine = start + per_process * jax.process_index() + np.arange(per_process)
        weight = (mine < rows).astype(np.float32)
        x = np.where(mine < rows, mine, 0).astype(np.float32)
        local = (jax.make_array_from_process_local_data(by_rows, part) for part in (x, weight))
        total = add(total, *local)
    mean = float(total[0] / total[1])
    return {"mean": mean, "expected": float(np.mean(np.arange(rows) ** 2.0)), "counted": float(total[1])}
