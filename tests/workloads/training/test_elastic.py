"""A job that loses a slice and gets it back, in one process per host."""

import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.processes import running_hosts
from tests.workloads.history import history
from tests.workloads.jobs import small_job
from workloads.progress import CheckpointSaved, FewerSlices, RunStarted, StepProgress
from workloads.spec import JOB_SPEC_VARIABLE, ExitCode, JobSpec

TIMEOUT_SECONDS = 600

STEPS = 40

UNHURRIED = """
import time
from workloads.training.data import Batches
training = Batches.training
def unhurried(self, number):
    time.sleep(0.2)
    return training(self, number)
Batches.training = unhurried
"""
"""`sitecustomize` of every process. It slows steps, because hosts learn of a SIGTERM only within a second."""


def elastic(storage: Path) -> JobSpec:
    """Return a job with a batch of 16 over three slices of two devices, with three rows each, two of 18 padding."""
    return small_job(storage, replica=3, fsdp=2, min_count=2, steps=STEPS, save_every_steps=3)


@dataclass
class Outcome:
    """Output of the leader in one attempt."""

    began: int
    losses: dict[int, float]
    fewer: list[FewerSlices]


def start(job: JobSpec, slices: int, attempt: int, folder: Path, to_the_end: bool) -> Outcome:
    """Run the job on `slices` slices. Unless `to_the_end`, send it SIGTERM when it has saved."""
    outcome, signalled = Outcome(-1, {}, []), False
    (folder / "site").mkdir(exist_ok=True)
    (folder / "site" / "sitecustomize.py").write_text(UNHURRIED)
    environment = {
        JOB_SPEC_VARIABLE: job.model_dump_json(),
        "PYTHONPATH": f"{folder / 'site'}:{Path(__file__).parents[3]}",
    }
    present = job.on_slices(slices)
    with running_hosts(present, attempt, folder / f"logs-{attempt}", TIMEOUT_SECONDS, environment) as hosts:
        for line in hosts.follow():
            if started := RunStarted.parse(line):
                outcome.began = started.step
            elif step := StepProgress.parse(line):
                outcome.losses[step.step] = step.loss
            elif CheckpointSaved.parse(line) and not to_the_end and not signalled:
                signalled = True
                hosts.all[-1].process.send_signal(signal.SIGTERM)
            elif fewer := FewerSlices.parse(line):
                outcome.fewer.append(fewer)
        codes = {host.process.wait(TIMEOUT_SECONDS) for host in hosts.all}
    assert codes == {ExitCode.DONE if to_the_end else ExitCode.PREEMPTED}
    return outcome


@pytest.mark.complete
@pytest.mark.timeout(2 * TIMEOUT_SECONDS)
def test_a_job_goes_on_without_a_slice_and_with_it_again_and_sees_every_batch_once(tmp_path: Path) -> None:
    uninterrupted = start(elastic(tmp_path / "one"), 3, 9, tmp_path, to_the_end=True)
    job = elastic(tmp_path / "two")
    whole = start(job, 3, 0, tmp_path, to_the_end=False)
    shrunk = start(job, 2, 1, tmp_path, to_the_end=False)
    grown = start(job, 3, 2, tmp_path, to_the_end=True)
    assert (whole.began, shrunk.began, grown.began) == (0, max(whole.losses), max(shrunk.losses))
    assert (whole.fewer, shrunk.fewer, grown.fewer) == ([], [FewerSlices(2, 3, 2, 16, 0)], [])
    assert history(tmp_path / "two") == ([*range(STEPS)], [])
    # On the same slices, losses are bitwise equal. On others, sums over devices have another order.
    assert whole.losses == {step: uninterrupted.losses[step] for step in whole.losses}
    assert shrunk.losses | grown.losses == pytest.approx(
        {step: uninterrupted.losses[step] for step in range(shrunk.began + 1, STEPS + 1)}, rel=1e-5
    )
