"""A job that loses a slice and gets it back, in one process per host."""

import signal
from pathlib import Path

import pytest

from cli.hosts import Hosts
from tests.workloads.history import history
from tests.workloads.hosts import TIMEOUT_SECONDS, attempt, first_code, sabotage
from tests.workloads.jobs import small_job
from tests.workloads.training.running import losses, parsed
from workloads.progress import CheckpointSaved, FewerSlices, RunStarted
from workloads.spec import JOB_SPEC_VARIABLE, ExitCode, JobSpec

STEPS = 40

UNHURRIED = sabotage("time.sleep(0.2)")
"""Hosts learn of a SIGTERM only within a second."""


def elastic(storage: Path) -> JobSpec:
    """Return a job with a batch of 16 over three slices of two devices, with three rows each, two of 18 padding."""
    return small_job(storage, replica=3, fsdp=2, min_count=2, steps=STEPS, save_every_steps=3)


def start(job: JobSpec, slices: int, number: int, folder: Path, to_the_end: bool) -> list[str]:
    """Run the job on `slices` slices. Unless `to_the_end`, send it SIGTERM when it has saved."""
    signalled: list[str] = []

    def strike(hosts: Hosts, line: str) -> None:
        if CheckpointSaved.parse(line) and not to_the_end and not signalled:
            signalled.append(line)
            hosts.all[-1].process.send_signal(signal.SIGTERM)

    environment = first_code(folder / "site", UNHURRIED) | {JOB_SPEC_VARIABLE: job.model_dump_json()}
    ended = attempt(job.on_slices(slices), number, folder / f"logs-{number}", environment, strike)
    assert {*ended.codes} == {ExitCode.DONE if to_the_end else ExitCode.PREEMPTED}
    return ended.lines


@pytest.mark.complete
@pytest.mark.timeout(2 * TIMEOUT_SECONDS)
def test_a_job_goes_on_without_a_slice_and_with_it_again_and_sees_every_batch_once(tmp_path: Path) -> None:
    uninterrupted = start(elastic(tmp_path / "one"), 3, 9, tmp_path, to_the_end=True)
    job = elastic(tmp_path / "two")
    whole = start(job, 3, 0, tmp_path, to_the_end=False)
    shrunk = start(job, 2, 1, tmp_path, to_the_end=False)
    grown = start(job, 3, 2, tmp_path, to_the_end=True)
    began = [found.step for lines in (whole, shrunk, grown) for found in parsed(RunStarted, lines)]
    assert began == [0, max(losses(whole)), max(losses(shrunk))]
    assert [parsed(FewerSlices, lines) for lines in (whole, shrunk, grown)] == [[], [FewerSlices(2, 3, 2, 16, 0)], []]
    assert history(tmp_path / "two") == ([*range(STEPS)], [])
    # On the same slices, losses are bitwise equal. On others, sums over devices have another order.
    expected = losses(uninterrupted)
    assert losses(whole) == {step: expected[step] for step in losses(whole)}
    assert losses(shrunk) | losses(grown) == pytest.approx(
        {step: expected[step] for step in range(began[1] + 1, STEPS + 1)}, rel=1e-5
    )
