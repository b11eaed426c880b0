"""`workloads.training.outer_loop`: slices that train on their own between outer steps, in processes."""

from pathlib import Path
from statistics import mean

import pytest

from tests.workloads.hosts import first_code
from tests.workloads.jobs import small_job, validated
from tests.workloads.slices import ALL_DAMAGED, GATED, Slices, events
from tests.workloads.training.running import losses, parsed
from workloads.progress import CheckpointSaved, Evaluation, PartsLost, RunStarted
from workloads.spec import ExitCode, JobSpec

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
@pytest.mark.parametrize(("before", "now"), [(4, 1), (1, 4)])
def test_a_checkpoint_with_outer_steps_is_refused_by_a_job_without_them_and_the_reverse(
    before: int, now: int, tmp_path: Path
):
    def job(every: int, steps: int) -> JobSpec:
        return job_of(tmp_path / "storage", steps=steps, sync_every=every)

    trained(job(before, 8), tmp_path / "first")
    (run,) = (tmp_path / "storage" / "runs").iterdir()
    with Slices(job(now, 16), tmp_path / "second", {}, restarts=1) as slices:
        assert {code for each in slices.codes(SECONDS).values() for code in each} == {ExitCode.INVALID_SPEC}
        lines = slices.lines
    assert any(f"training.sync_every: expected {before}, got {now}; restore them or begin" in line for line in lines)
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["8"]


@pytest.mark.complete
def test_a_slice_at_which_every_state_arrives_damaged_continues_from_a_checkpoint_of_an_outer_step(tmp_path: Path):
    job = job_of(tmp_path / "storage", steps=80, save_every_steps=40)
    code = first_code(tmp_path / "site", f"{GATED}\n{ALL_DAMAGED}")
    with Slices(job, tmp_path / "logs", code) as slices:
        slices.until_step(8, SECONDS)
        slices.lose_and_return(1, SECONDS)
        assert {code for each in slices.codes(SECONDS).values() for code in each} == {ExitCode.DONE}
        assert sorted(slices.steps) == [*range(1, 81)]
    restored = {event["step"] for event in events(tmp_path / "storage", "restore") if event["stored"]}
    assert 0 in restored
    assert max(restored) >= 8
    assert {step % 4 for step in restored} == {0}


@pytest.mark.complete
@pytest.mark.parametrize(("lost", "fragments"), [(0, 1), (1, 1), (1, 2)])
def test_a_lost_slice_comes_back_at_an_outer_step(lost: int, fragments: int, tmp_path: Path):
    job = job_of(tmp_path / "storage", steps=120, save_every_steps=40, sync_fragments=fragments)
    every = job.training.exchange_every
    others = [one for one in range(3) if one != lost]
    with Slices(job, tmp_path / "logs", first_code(tmp_path / "site", GATED)) as slices:
        slices.until_step(8, SECONDS)
        pids = slices.pids(*others)
        slices.kill(lost)
        slices.until_others_train_on(lost, SECONDS)
        slices.bring_back(lost, SECONDS)
        codes = slices.codes(SECONDS)
        assert slices.pids(*others) == pids
        lines, steps, changes = slices.lines, slices.steps, slices.changes

    assert {code for each in codes.values() for code in each} == {ExitCode.DONE}
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
