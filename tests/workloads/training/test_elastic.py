"""A job that loses a slice and gets it back, in one process per host."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.workloads.history import history
from tests.workloads.hosts import TIMEOUT_SECONDS, attempt, first_code
from tests.workloads.jobs import small_job
from tests.workloads.training.running import losses, parsed
from workloads.progress import FewerSlices, RunStarted
from workloads.spec import JOB_SPEC_VARIABLE, ExitCode, JobSpec

STEPS = 24
MEMBERS = {0: 3, 8: 2, 15: 3}
"""Number of slices from each number of steps done on."""

STOPS = """
from workloads.training.runtime import Processes
def should_stop(self):
    self.trains.set()
    return next(self._asks) > {steps}
Processes.should_stop = should_stop
"""
"""First code with which all hosts stop after this many steps, as after SIGTERM."""


def elastic(storage: Path) -> JobSpec:
    """Return a job with a batch of 16 over three slices of two devices, with three rows each, two of 18 padding."""
    return small_job(storage, replica=3, fsdp=2, min_count=2, steps=STEPS, save_every_steps=5)


def run(job: JobSpec, slices: int, number: int, until: int = STEPS, begins: int = 0) -> list[str]:
    """Run `job` on `slices` slices from step `begins` on, stop it after step `until`, and return its output."""
    folder = Path(job.storage.path).with_suffix(f".{number}")
    folder.mkdir()
    code = first_code(folder / "site", STOPS.format(steps=until - begins))
    ended = attempt(job.on_slices(slices), number, folder / "logs", code | {JOB_SPEC_VARIABLE: job.model_dump_json()})
    assert {*ended.codes} == {ExitCode.DONE if until == STEPS else ExitCode.PREEMPTED}
    return ended.lines


def attempts(jobs: Mapping[int, JobSpec]) -> list[list[str]]:
    """Return the output of each attempt. `jobs` has the job on each number of slices."""
    begins, ends = [*MEMBERS], [*MEMBERS][1:] + [STEPS]
    slices = MEMBERS.values()
    return [
        run(jobs[count], count, number, until, begin)
        for number, (count, begin, until) in enumerate(zip(slices, begins, ends, strict=True))
    ]


@pytest.mark.complete
@pytest.mark.timeout(3 * TIMEOUT_SECONDS)
def test_a_job_goes_on_without_a_slice_and_with_it_again_as_if_it_were_resumed_by_hand(tmp_path: Path) -> None:
    uninterrupted = losses(run(elastic(tmp_path / "one"), 3, 0))
    job = elastic(tmp_path / "two")
    members = attempts(dict.fromkeys((2, 3), job))
    assert [found.step for lines in members for found in parsed(RunStarted, lines)] == [*MEMBERS]
    assert [parsed(FewerSlices, lines) for lines in members] == [[], [FewerSlices(2, 3, 2, 16, 0)], []]
    assert history(tmp_path / "two") == ([*range(STEPS)], [])
    resumed = elastic(tmp_path / "three")
    hands = attempts({count: resumed.on_slices(count) for count in (2, 3)})
    assert [parsed(FewerSlices, lines) for lines in hands] == [[], [], []]
    assert [losses(lines) for lines in members] == [losses(lines) for lines in hands], "bitwise equal"
    # On the same slices, losses are bitwise equal. On others, sums over devices have another order.
    found = {step: loss for lines in members for step, loss in losses(lines).items()}
    assert losses(members[0]) == {step: uninterrupted[step] for step in range(1, 9)}
    assert found == pytest.approx(uninterrupted, rel=1e-5)
