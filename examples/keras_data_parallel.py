"""A Keras model trained by all devices, each process with its own rows.

`DataParallel` keeps the weights on every device and splits each batch. Every process feeds batches of its own part of
the data, as many and as large as the others', and Keras makes global arrays of them. Before Keras is imported, its
backend is named.
"""

import os
from typing import Any


def run(epochs: int = 3) -> dict[str, Any]:
    """Fit a line; returns the losses and whether all processes ended with the same weights."""
    os.environ["KERAS_BACKEND"] = "jax"
    import jax
    import keras
    import numpy as np
    from jax.experimental.multihost_utils import process_allgather

    keras.utils.set_random_seed(0)  # the same first weights on every process
    keras.distribution.set_distribution(
        keras.distribution.DataParallel(devices=keras.distribution.list_devices(), auto_shard_dataset=False)
    )
    model: Any = keras.Sequential(
        [keras.layers.Input((2,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)]
    )
    model.compile(optimizer=keras.optimizers.Adam(0.05), loss="mse")

    batch = 4 * jax.local_device_count()
    mine = np.random.default_rng(jax.process_index())
    x = mine.normal(size=(8 * batch, 2)).astype(np.float32)
    y = x @ np.array([[2.0], [-1.0]], np.float32)
    fitted = model.fit(x, y, batch_size=batch, epochs=epochs, shuffle=False, verbose=0)
    losses = [float(loss) for loss in fitted.history["loss"]]
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    kernel = np.asarray(model.layers[-1].kernel.value.addressable_data(0))
    everyones = process_allgather(kernel)
    return {"losses": losses, "same_weights": bool((everyones == everyones[0]).all()), "processes": len(everyones)}
