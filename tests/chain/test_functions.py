"""Functions called on the slices of a stack in every way: real queue, real hosts, real bucket.

The stack's own job does nothing and ends at once, so that calls have all chips.
"""

import re
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import multislice
from examples.__main__ import main
from multislice import CallGone, Function, HostTraceback, State
from tests.chain.shared import SLEEPER
from tests.chain.stack import PATIENCE_SECONDS, Chain, ignore, wait_until
from tests.chain.test_call import place_of_processes
from tests.infra.recording import stack_values

pytestmark = pytest.mark.complete


@pytest.fixture(scope="module")
def stack(chain: Chain) -> Chain:
    """The sandbox with the stack up and all its chips free."""
    values = stack_values("local")
    del values["job"]
    values["jobs"] = {"before": SLEEPER | {"command": ["true"], "args": []}}
    chain.engine_on(values).up(ignore)
    chain.wait_for_end("before")
    return chain


def on_slices(stack: Chain, function: Any, **options: Any) -> Function[..., Any]:
    asked: dict[str, Any] = {"count": 2, "sandbox": stack.site.root, **options}
    return multislice.run("local", "trillium", **asked)(function)


def test_a_call_shows_what_the_leader_prints_and_returns_its_value(
    stack: Chain, capfd: pytest.CaptureFixture[str]
) -> None:
    assert on_slices(stack, place_of_processes)(2) == {"processes": [0, 2, 4, 6]}
    shown = capfd.readouterr()
    assert [line for line in shown.out.splitlines() if line.startswith("process")] == ["process 0 sees 16 devices"]
    assert re.search(r"multislice: call \S+ (queued|starting|running)", shown.err)


def test_an_exception_on_one_host_is_raised_here_and_nothing_starts_again(stack: Chain) -> None:
    def uneven() -> None:
        import jax
        from jax.experimental.multihost_utils import sync_global_devices

        if jax.process_index() == 3:
            raise LookupError("no such row")
        sync_global_devices("never")

    call = on_slices(stack, uneven).start()
    with pytest.raises(LookupError, match="no such row") as found:
        call.result(PATIENCE_SECONDS)
    assert isinstance(found.value.__cause__, HostTraceback)
    assert found.value.__cause__.host == "slice-1-1"
    assert "raise LookupError" in str(found.value.__cause__)
    assert call.status().state is State.FAILED
    assert stack.jobset(call.id)["status"].get("restarts", 0) == 0


def test_a_cancelled_call_frees_its_chips(stack: Chain) -> None:
    def sleeps() -> None:
        time.sleep(3600)

    call = on_slices(stack, sleeps).start()
    wait_until(lambda: call.status().state is State.RUNNING, lambda: str(call.status()))
    call.cancel()
    with pytest.raises(CallGone):
        call.result(PATIENCE_SECONDS)
    wait_until(lambda: not stack.pods(call.id), lambda: stack.kubectl("get", "pods", "-A"))


def test_what_a_call_leaves_in_the_bucket_is_what_the_function_wrote(stack: Chain) -> None:
    def writes() -> str:
        import os

        from etils import epath

        path = epath.Path(os.environ["MULTISLICE_OUTPUT"]) / "words.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("kept")
        return str(path)

    def calls() -> set[Path]:
        folder = stack.site.buckets / "sandbox-local-checkpoints" / "teams"
        return {path for path in folder.rglob("*") if path.is_file() and "starts" not in path.parts}

    before = calls()
    path = on_slices(stack, writes, count=1)()
    (left,) = calls() - before
    assert path.endswith("/".join(left.parts[-3:]))
    assert left.read_text() == "kept"


def test_a_preempted_call_continues_from_its_last_save_with_the_result_of_an_undisturbed_one(stack: Chain) -> None:
    def summed(steps: int, pause_seconds: float) -> dict[str, Any]:
        import jax
        import jax.numpy as jnp
        from jax.experimental.multihost_utils import process_allgather
        from jax.sharding import NamedSharding, PartitionSpec

        mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
        rows = NamedSharding(mesh, PartitionSpec("data"))
        zeros = jax.jit(lambda: jnp.zeros(jax.device_count()), out_shardings=rows)()
        add = jax.jit(lambda state, step: state * 0.9 + step)
        training = multislice.resumable(zeros, save_every=2)
        for step in training.steps(steps):
            print(f"step {step}", flush=True)
            training.state = add(training.state, jnp.asarray(float(step)))
            time.sleep(pause_seconds)
        return {"first_step": training.first_step, "sum": process_allgather(training.state, tiled=True).tolist()}

    low = on_slices(stack, summed, priority="low").start(60, 0.5)

    def has_saved() -> bool:
        with suppress(CallGone):
            # Every save waits for the one before it.
            return "step 5" in low.logs()
        return False

    wait_until(has_saved, lambda: str(low.status()))
    # It needs all chips of the other call, and has the result that this one would have.
    undisturbed = on_slices(stack, summed, priority="high").start(60, 0).result(PATIENCE_SECONDS)
    preempted = low.result(PATIENCE_SECONDS)
    assert undisturbed["first_step"] == 0
    assert 0 < preempted["first_step"] < 60
    assert preempted["sum"] == undisturbed["sum"]


def test_an_example_runs_on_slices(
    stack: Chain, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What each example computes is tested without slices."""
    words = ["leader_result", "--stack", "local", "--slices", "trillium", "--count", "2"]
    monkeypatch.setattr(sys, "argv", ["examples", *words, "--sandbox", str(stack.site.root)])
    main()
    assert "'rows': [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]" in capsys.readouterr().out
