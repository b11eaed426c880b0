"""States that are saved between steps."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import multislice


def sharded() -> NamedSharding:
    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    return NamedSharding(mesh, PartitionSpec("data"))


def beginning() -> dict[str, Any]:
    zeros = jax.device_put(jnp.zeros(2 * jax.device_count()), sharded())
    return {"sum": zeros, "seen": np.zeros(3), "last": 0}


def after(state: dict[str, Any], step: int) -> dict[str, Any]:
    return {"sum": state["sum"] + step, "seen": state["seen"] - step, "last": step}


def as_numbers(state: dict[str, Any]) -> dict[str, Any]:
    return {name: np.asarray(value).tolist() for name, value in state.items()}


def trained(folder: Path, count: int, save_every: int = 3, fails_at: int | None = None) -> tuple[int, Any]:
    training = multislice.resumable(beginning(), save_every=save_every, folder=str(folder))
    for step in training.steps(count):
        if step == fails_at:
            raise KeyboardInterrupt
        training.state = after(training.state, step)
    return training.first_step, training.state


def test_it_continues_after_the_last_save_and_ends_as_if_it_had_not_been_disturbed(tmp_path: Path) -> None:
    _, undisturbed = trained(tmp_path / "whole", 10)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "parts", 10, fails_at=8)
    first, state = trained(tmp_path / "parts", 10)
    assert first == 6
    assert as_numbers(state) == as_numbers(undisturbed)
    assert state["sum"].sharding == undisturbed["sum"].sharding
    assert type(state["last"]) is int


def test_a_finished_loop_has_saved_its_last_step_and_has_none_left(tmp_path: Path) -> None:
    _, state = trained(tmp_path, 4)
    first, again = trained(tmp_path, 4)
    assert (first, as_numbers(again)) == (4, as_numbers(state))
    # More steps than before continue where it ended.
    assert trained(tmp_path, 5)[0] == 4


def test_a_state_of_other_arrays_is_refused(tmp_path: Path) -> None:
    trained(tmp_path, 3)
    larger = beginning() | {"sum": np.zeros(3)}
    for other in ({"weights": np.zeros(3)}, larger):
        with pytest.raises(ValueError, match=f"{tmp_path}: expected the arrays of the state .* after step 2, got"):
            multislice.resumable(other, save_every=1, folder=str(tmp_path))


def test_what_cannot_be_meant_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="save_every to be a number of steps of at least 1, got 0"):
        multislice.resumable({}, save_every=0, folder=str(tmp_path))
    monkeypatch.delenv("MULTISLICE_OUTPUT", raising=False)
    with pytest.raises(RuntimeError, match="set it to a folder to run the function here"):
        multislice.resumable({}, save_every=1)
