"""`workloads.training.group_loop`: slices that are JAX worlds of their own, in processes, with lost and returning
slices."""

from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.workloads.hosts import attempt, first_code, sabotage
from tests.workloads.jobs import small_job, validated
from tests.workloads.slices import Slices
from tests.workloads.training.running import losses, parsed
from workloads.progress import Evaluation, SlicesChanged
from workloads.spec import ExitCode, JobSpec

UNHURRIED = sabotage("time.sleep(0.15)")


def job_of(storage: Path, hosts: int = 1, steps: int = 60, **training: Any) -> JobSpec:
    """Return a job of three slices of two devices."""
    job = small_job(storage, replica=3, fsdp=2, hosts=hosts, steps=steps, global_batch=12, **training)
    return validated(job, slice_failure="continue")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the output of the same job as one JAX world."""
    folder = tmp_path_factory.mktemp("one-world")
    job = validated(job_of(folder / "storage", save_every_steps=20), slice_failure="restart")
    ended = attempt(job, 0, folder / "logs")
    assert {*ended.codes} == {ExitCode.DONE}
    return ended.lines


@pytest.mark.complete
@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_slice_costs_no_step_and_comes_back_with_the_state_of_another(
    lost: int, tmp_path: Path, uninterrupted: list[str]
):
    job = job_of(tmp_path / "storage", save_every_steps=20)
    others = [one for one in range(3) if one != lost]
    with Slices(job, tmp_path / "logs", first_code(tmp_path / "site", UNHURRIED)) as slices:
        slices.until_step(8)
        pids = slices.pids(*others)
        slices.kill(lost)
        slices.start(lost)
        slices.until(f"joined {lost}")
        codes = slices.codes()
        assert slices.pids(*others) == pids
        lines, steps = slices.lines, slices.steps

    assert {code for each in codes.values() for code in each} == {ExitCode.DONE}
    assert [change.change for change in parsed(SlicesChanged, lines)][1:3] == [f"lost {lost}", f"joined {lost}"]
    assert losses(lines) == pytest.approx(losses(uninterrupted), rel=1e-5)
    assert [one.loss for one in parsed(Evaluation, lines)][-1] == pytest.approx(
        parsed(Evaluation, uninterrupted)[-1].loss, rel=1e-5
    )
    milliseconds = [step.step_ms for step in steps.values()]
    print(lost, median(milliseconds), sorted(milliseconds)[-4:])
