"""The rules of JAX on several hosts, each as a function that runs on slices; docs/how-to/functions.md says how.

JAX and Keras are imported by the functions, because the machine that calls them need not have them.
"""

from typing import Any

import multislice


def _rows_over_all_devices() -> Any:
    """The sharding of an array whose rows are split over the devices of all hosts."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    return NamedSharding(mesh, PartitionSpec("data"))


def same_order(steps: int = 3) -> dict[str, Any]:
    """Every process runs the same collectives in the same order; what one alone does must be none.

    A jitted function on global arrays, a save of sharded arrays, `jax.devices()` the first time: all are collectives.
    One that stands under `if jax.process_index() == 0` waits for processes that never come, and the call hangs until
    its timeout. So compute on all processes, and let the condition stand around what touches this process alone.

    Returns losses that are computed on all processes and printed by one.
    """
    import jax
    import jax.numpy as jnp

    rows = jax.device_put(jnp.arange(float(jax.device_count())), _rows_over_all_devices())

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


def local_data(rows_per_device: int = 4) -> dict[str, Any]:
    """Each process loads its own rows; together they are one global array.

    `jax.make_array_from_process_local_data` takes what this process has read and the sharding of the whole. No process
    ever holds all rows, and the function under `jax.jit` is written as if there were one array.

    Returns the sum of rows that no process has all of, and what it must be.
    """
    import jax
    import numpy as np

    mine = rows_per_device * jax.local_device_count()
    first = mine * jax.process_index()  # of a file, say, of which each process reads its part
    local = np.arange(first, first + mine, dtype=np.float32)

    rows = jax.make_array_from_process_local_data(_rows_over_all_devices(), local)
    every = rows_per_device * jax.device_count()
    print(f"process 0 read {local.size} of {rows.size} rows")
    return {"sum": float(jax.jit(lambda x: x.sum())(rows)), "expected": every * (every - 1) / 2}


def last_batch(rows: int = 21, batch: int = 8) -> dict[str, Any]:
    """A last batch that does not divide over the devices is padded, and the padding weighs nothing.

    Every batch has the same shape, or each process would compile again, and a shard without rows cannot be. The mean is
    the sum of the weighted losses over the sum of the weights, both over all processes: a mean of the processes' means
    would count the rows of a short shard more than others.

    Returns the mean over rows that do not divide, and what it must be.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    by_rows = _rows_over_all_devices()
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


def leader_result() -> dict[str, Any]:
    """What a call returns is what process 0 returns; what lies on other processes is gathered before, by all of them.

    A sharded array has parts that process 0 does not see. `process_allgather` is a collective: every process calls it,
    and each then has the whole.

    Returns rows of all processes, and which process speaks.
    """
    import jax
    import numpy as np
    from jax.experimental.multihost_utils import process_allgather

    local = np.full(jax.local_device_count(), jax.process_index())
    rows = jax.make_array_from_process_local_data(_rows_over_all_devices(), local)
    whole = process_allgather(rows, tiled=True)
    return {"rows": [int(row) for row in whole], "process": jax.process_index(), "local": jax.local_device_count()}


def keras_data_parallel(epochs: int = 3) -> dict[str, Any]:
    """A Keras model is trained on all devices of all hosts, by the code that trains it on one.

    Every process begins with the same weights and calls `fit` with the same arrays. Each then feeds its own rows of
    every batch. So `batch_size` is that of all devices together, and must be a multiple of their number.

    Returns the losses of fitting a line, and whether all processes ended with the same weights.
    """
    import jax
    import keras
    import numpy as np
    from jax.experimental.multihost_utils import process_allgather

    x = np.random.normal(size=(256, 2)).astype(np.float32)
    y = x @ np.array([[2.0], [-1.0]], np.float32)
    model: Any = keras.Sequential(
        [keras.layers.Input((2,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)]
    )
    model.compile(optimizer=keras.optimizers.Adam(0.05), loss="mse")
    fitted = model.fit(x, y, batch_size=4 * jax.device_count(), epochs=epochs, verbose=0)
    losses = [float(loss) for loss in fitted.history["loss"]]
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    kernel = np.asarray(model.layers[-1].kernel.value.addressable_data(0))
    everyones = process_allgather(kernel)
    return {"losses": losses, "same_weights": bool((everyones == everyones[0]).all()), "processes": len(everyones)}


def checkpoints(steps: int = 6, save_every: int = 2) -> dict[str, Any]:
    """A function continues from its last save after its hosts were taken away.

    Every process calls `resumable` and runs all steps of its loop, because saving and restoring are collectives: each
    process writes and reads its own parts of the arrays.

    Returns the first step of this attempt, and the sum of all steps.
    """
    import jax
    import jax.numpy as jnp

    zeros = jax.device_put(jnp.zeros(jax.device_count()), _rows_over_all_devices())
    add = jax.jit(lambda state, step: {"sum": state["sum"] + step})

    training = multislice.resumable({"sum": zeros}, save_every=save_every)
    for step in training.steps(steps):
        training.state = add(training.state, jnp.asarray(float(step)))
    return {"first_step": training.first_step, "sum": float(jax.jit(jnp.mean)(training.state["sum"]))}


def one_process() -> dict[str, Any]:
    """A function runs once, with the devices of all hosts, by `backend="pathways"`.

    There is one process, so nothing has to be gathered and no other process has to run the same collectives.

    Returns the sum over the devices of all hosts, their number, and that of the processes.
    """
    import jax
    import jax.numpy as jnp

    rows = jax.device_put(jnp.arange(jax.device_count()), _rows_over_all_devices())
    return {"sum": int(rows.sum()), "devices": jax.device_count(), "processes": jax.process_count()}
