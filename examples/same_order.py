"""Every process runs the same collectives in the same order; what one alone does must be none.

A jitted function on global arrays, a save of sharded arrays, `jax.devices()` the first time: all are collectives. One
that stands under `if jax.process_index() == 0` waits for processes that never come, and the call hangs until its
timeout. So compute on all processes, and let the condition stand around what touches this process alone.
"""

from typing import Any


def run(steps: int = 3) -> dict[str, Any]:
    """A loss on all processes, printed by one; returns the losses."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.device_put(jnp.arange(float(jax.device_count())), NamedSharding(mesh, PartitionSpec("data")))

    @jax.jit
    def loss_of(rows: jax.Array, step: jax.Array) -> jax.Array:
        return jnp.mean(rows) / (step + 1)

    losses: list[float] = []
    for step in range(steps):
        loss = loss_of(rows, jnp.asarray(step))  # on every process: it sums over all of them
        if jax.process_index() == 0:  # no collective from here on
            print(f"step {step} loss {float(loss):.4f}", flush=True)
        losses.append(float(loss))
    return {"losses": losses, "devices": jax.device_count()}
