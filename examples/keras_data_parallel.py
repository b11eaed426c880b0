"""A Keras model trained on all devices of all hosts, by the code that trains it on one.

Every process begins with the same weights and calls `fit` with the same arrays. Each then feeds its own rows of every
batch. So `batch_size` is that of all devices together, and must be a multiple of their number.
"""

from typing import Any


def run(epochs: int = 3) -> dict[str, Any]:
    """Fit a line; returns the losses and whether all processes ended with the same weights."""
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
