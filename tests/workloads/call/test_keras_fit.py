"""Keras on several hosts of a call, with code written for one host."""

import importlib
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.workloads.call.running import SECONDS, TWO_SLICES, carried_out, submitted

ROWS = 22


@pytest.fixture(scope="module")
def keras_fit() -> Any:
    os.environ["KERAS_BACKEND"] = "jax"
    return importlib.import_module("workloads.call.keras_fit")


def fed(
    keras_fit: Any, monkeypatch: pytest.MonkeyPatch, process: int, rows: int = ROWS, **options: Any
) -> list[list[int]]:
    """Return the rows of each batch that one of two processes with two devices each feeds."""
    alike = SimpleNamespace(num_processes=2, num_model_replicas=4, data_shard_id=process, auto_shard_dataset=True)
    monkeypatch.setattr("keras.distribution.distribution", lambda: alike)
    np.random.seed(0)
    adapter = keras_fit._data_adapter(None, np.arange(rows), np.arange(rows), **options)
    batches = [[int(row) for row in batch[0]] for batch in adapter.get_jax_iterator()]
    assert len(batches) == adapter.num_batches
    return batches


@pytest.mark.parametrize("shuffle", [False, True, "batch"])
def test_processes_feed_rows_of_their_own_which_together_are_the_batch(
    keras_fit: Any, monkeypatch: pytest.MonkeyPatch, shuffle: Any
) -> None:
    first, second = (fed(keras_fit, monkeypatch, process, batch_size=8, shuffle=shuffle) for process in (0, 1))
    assert [(len(mine), len(others)) for mine, others in zip(first, second, strict=True)] == [(4, 4), (4, 4), (2, 2)]
    rows = [row for batch in (*first, *second) for row in batch]
    assert len(set(rows)) == len(rows) == 20
    if not shuffle:
        assert first[0] + second[0] == [*range(8)]


def test_a_last_batch_that_no_device_gets_a_row_of_is_left_out(keras_fit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fed(keras_fit, monkeypatch, 0, batch_size=20) == [[*range(10)]]


@pytest.mark.parametrize(("batch_size", "rows"), [(6, ROWS), (32, 3)])
def test_a_batch_that_devices_cannot_share_is_refused(
    keras_fit: Any, monkeypatch: pytest.MonkeyPatch, batch_size: int, rows: int
) -> None:
    with pytest.raises(ValueError, match="multiple of 4"):
        fed(keras_fit, monkeypatch, 0, rows, batch_size=batch_size)


@pytest.mark.complete
@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.costs(cpu_seconds=30)
def test_data_parallel_code_without_a_seed_trains_the_same_model_on_every_host(tmp_path: Path) -> None:
    def train() -> dict[str, Any]:
        import jax
        import keras
        import numpy as np
        from jax.experimental.multihost_utils import process_allgather

        devices = keras.distribution.list_devices()
        mesh = keras.distribution.DeviceMesh(shape=(len(devices),), axis_names=["batch"], devices=devices)
        keras.distribution.set_distribution(keras.distribution.DataParallel(device_mesh=mesh))
        x = np.arange(48, dtype=np.float32).reshape(24, 2) / 48
        y = x @ np.array([[2.0], [-1.0]], np.float32)
        model: Any = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1, use_bias=False)])
        model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")

        def weights() -> Any:
            return np.asarray(model.layers[0].kernel.value.addressable_data(0))

        before = weights()
        expected = before - 0.1 * 2 / len(x) * x.T @ (x @ before - y)
        model.fit(x, y, batch_size=24, epochs=1, verbose=0)
        everyones = process_allgather(weights())
        loss = model.evaluate(x, y, batch_size=8, verbose=0)
        return {"weights": everyones, "expected": expected, "loss": loss, "processes": jax.process_count()}

    called = carried_out(submitted(tmp_path / "call", train, slices=TWO_SLICES), tmp_path / "logs")
    found = called.result()
    assert found["processes"] == 2
    for weights in found["weights"]:
        np.testing.assert_allclose(weights, found["expected"], rtol=1e-5)
    assert found["loss"] > 0
