"""States that are saved between steps, in this process and on hosts that are killed."""

import signal
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import multislice
from tests.workloads.call.running import SECONDS, TWO_SLICES, carried_out, hosts_of, submitted


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


def summed(steps: int, pause_seconds: float) -> dict[str, Any]:
    from jax.experimental.multihost_utils import process_allgather

    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = NamedSharding(mesh, PartitionSpec("data"))
    training = multislice.resumable(jax.jit(lambda: jnp.zeros(jax.device_count()), out_shardings=rows)(), save_every=2)
    add = jax.jit(lambda state, step: state * 0.5 + step)
    for step in training.steps(steps):
        print(f"step {step}", flush=True)
        training.state = add(training.state, jnp.asarray(float(step)))
        time.sleep(pause_seconds)
    print(multislice.checkpoint_folder())
    return {"first_step": training.first_step, "sum": process_allgather(training.state, tiled=True).tolist()}


@pytest.mark.complete
@pytest.mark.timeout(2 * SECONDS + 60)
@pytest.mark.costs(cpu_seconds=60)
def test_a_call_whose_host_is_killed_continues_on_its_next_hosts_with_the_same_result(tmp_path: Path) -> None:
    undisturbed = carried_out(submitted(tmp_path / "whole", summed, 8, 0, slices=TWO_SLICES), tmp_path / "logs-0")
    spec = submitted(tmp_path / "call", summed, 8, 0.5, slices=TWO_SLICES)
    with hosts_of(spec, tmp_path / "logs-1") as hosts:
        for line in hosts.follow():
            if line == "step 5":
                hosts.all[1].process.send_signal(signal.SIGKILL)
        assert [host.process.wait() == 0 for host in hosts.all] == [False, False]
    called = carried_out(spec, tmp_path / "logs-2")
    assert called.result()["first_step"] in (2, 4)
    assert called.printed[-1] == f"{tmp_path}/call/output/checkpoints"
    assert called.result()["sum"] == undisturbed.result()["sum"]
