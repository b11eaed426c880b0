"""`workloads.training.outer_loop`: slices that train on their own between outer steps, in processes."""

import json
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from tests.workloads.hosts import first_code, sabotage
from tests.workloads.jobs import small_job, validated
from tests.workloads.slices import Slices
from tests.workloads.training.running import losses, parsed
from workloads.progress import CheckpointSaved, Evaluation, PartsLost, RunStarted, SlicesChanged
from workloads.spec import ExitCode, JobSpec

UNHURRIED = sabotage("time.sleep(0.15)")

SECONDS = 400
"""Time limit of a part of a test. Three processes compile and train on a few cores."""


def job_of(storage: Path, steps: int = 24, **training: object) -> JobSpec:
    """Return a job of three slices of two devices with an outer step after every fourth step."""
    job = small_job(storage, replica=3, fsdp=2, steps=steps, global_batch=12)
    settings = {"sync_every": 4, "lost_rows": "next-step", "save_every_steps": 8, **training}
    return validated(job, slice_failure="continue", training=job.training.model_dump() | settings)


def trained(job: JobSpec, logs: Path, restarts: int = 0) -> list[str]:
    """Return the output of a job that nothing happens to."""
    with Slices(job, logs, {}, restarts) as slices:
        assert {code for each in slices.codes(SECONDS).values() for code in each} == {ExitCode.DONE}
        return slices.lines


def events(storage: Path, kind: str) -> list[dict[str, Any]]:
    """Return the events of one kind from the ledgers of all processes."""
    lines = [line for path in storage.glob("runs/*/ledger/*.jsonl") for line in path.read_text().splitlines()]
    return [event for event in map(json.loads, lines) if event["event"] == kind]


@pytest.mark.complete
@pytest.mark.parametrize("fragments", [1, 2])
def test_a_run_that_resumes_from_a_checkpoint_is_the_run_that_was_not_interrupted(fragments: int, tmp_path: Path):
    job = job_of(tmp_path / "storage", steps=16, sync_fragments=fragments, evaluate_every_steps=6)
    whole = trained(job, tmp_path / "first")
    (run,) = (tmp_path / "storage" / "runs").iterdir()
    (run / "checkpoints" / "16").rename(tmp_path / "16")
    resumed = trained(job, tmp_path / "second", restarts=1)
    assert parsed(RunStarted, resumed)[0].step == 8
    assert losses(resumed) == {step: loss for step, loss in losses(whole).items() if step > 8}
    assert parsed(Evaluation, resumed) == [one for one in parsed(Evaluation, whole) if one.step > 8]
    turns = {event["step"]: event["fragment"] for event in events(tmp_path / "storage", "outer_step")}
    every = 4 // fragments
    assert turns == {step: (step // every - 1) % fragments for step in range(every, 17, every)}


@pytest.mark.complete
@pytest.mark.parametrize(("lost", "fragments"), [(0, 1), (1, 1), (1, 2)])
def test_a_lost_slice_comes_back_at_an_outer_step(lost: int, fragments: int, tmp_path: Path):
    job = job_of(tmp_path / "storage", steps=120, save_every_steps=40, sync_fragments=fragments)
    every = job.training.exchange_every
    others = [one for one in range(3) if one != lost]
    with Slices(job, tmp_path / "logs", first_code(tmp_path / "site", UNHURRIED)) as slices:
        slices.until_step(8, SECONDS)
        pids = slices.pids(*others)
        slices.kill(lost)
        slices.start(lost)
        slices.until(f"joined {lost}", SECONDS)
        codes = slices.codes(SECONDS)
        assert slices.pids(*others) == pids
        lines, steps = slices.lines, slices.steps

    assert {code for each in codes.values() for code in each} == {ExitCode.DONE}
    # The lost slice may have led, so the lines are in the logs of several slices.
    changes = sorted(parsed(SlicesChanged, lines), key=lambda change: change.step)
    assert [change.change for change in changes][1:3] == [f"lost {lost}", f"joined {lost}"]
    assert {change.step % every for change in changes} == {0}
    assert sorted(steps) == [*range(1, 121)]
    (gone,) = parsed(PartsLost, lines)
    assert (gone.parts, gone.dealt) == (every, 3 * every)
    assert sorted(saved.step for saved in parsed(CheckpointSaved, lines)) == [40, 80, 120]
    # Single steps have too few rows to compare them.
    found = losses(lines)
    assert mean(found[step] for step in range(101, 121)) < mean(found[step] for step in range(1, 21))
    assert events(tmp_path / "storage", "outer_step")
