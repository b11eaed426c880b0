"""A function that saves its state and goes on from there when its hosts were taken away.

The folder in `MULTISLICE_OUTPUT` stays the same for all starts of one call. Saving and restoring are collectives: every
process takes part, and each writes its own parts of the arrays.
"""

import os
from typing import Any


def run(steps: int = 6, save_every: int = 2) -> dict[str, Any]:
    """Add up steps; returns the first step of this start and their sum."""
    import jax
    import jax.numpy as jnp
    import orbax.checkpoint as ocp
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    state = {"sum": jax.device_put(jnp.zeros(jax.device_count()), NamedSharding(mesh, PartitionSpec("data")))}
    add = jax.jit(lambda state, step: {"sum": state["sum"] + step})

    folder = f"{os.environ['MULTISLICE_OUTPUT']}/checkpoints"
    options = ocp.CheckpointManagerOptions(save_interval_steps=save_every, max_to_keep=2)
    with ocp.CheckpointManager(folder, options=options) as checkpoints:
        last = checkpoints.latest_step()
        if last is not None:
            state = checkpoints.restore(last, args=ocp.args.StandardRestore(state))
        first = 0 if last is None else last + 1
        for step in range(first, steps):
            state = add(state, jnp.asarray(float(step)))
            checkpoints.save(step, args=ocp.args.StandardSave(state))
    return {"first_step": first, "sum": float(jax.jit(jnp.mean)(state["sum"]))}
