"""`workloads.training.group_loop`: slices that are JAX worlds of their own, in processes, with lost and returning
slices."""

import signal
import time
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.workloads.hosts import attempt, first_code, sabotage
from tests.workloads.jobs import small_job, validated
from tests.workloads.slices import ALL_DAMAGED, FIRST_DAMAGED, GATED, Slices, events
from tests.workloads.training.running import losses, parsed
from workloads.progress import CheckpointSaved, Evaluation, RunStarted
from workloads.spec import ExitCode, JobSpec

UNHURRIED = sabotage("time.sleep(0.15)")

SECONDS = 400
"""Time limit of a part of a test in which slices start several times."""


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
    assert losses(lines) == pytest.approx(losses(uninterrupted), rel=1e-5)
    assert [one.loss for one in parsed(Evaluation, lines)][-1] == pytest.approx(
        parsed(Evaluation, uninterrupted)[-1].loss, rel=1e-5
    )
    milliseconds = [step.step_ms for step in steps.values()]
    print(lost, median(milliseconds), sorted(milliseconds)[-4:])


def start_code(folder: Path, code: str) -> dict[str, str]:
    return first_code(folder, f"{UNHURRIED}\n{code}")


KILLED_AT_THE_END = """
import contextlib, os, signal
from workloads.training.group_slice import GroupSlice
announce = GroupSlice._announce_saved
def announced(self, wait):
    announce(self, wait)
    if self._leads and wait and self._saved_step == self.training.steps:
        with contextlib.suppress(FileExistsError), open(os.environ["GATE"] + ".killed", "x"):
            os.kill(os.getpid(), signal.SIGKILL)
GroupSlice._announce_saved = announced
"""
"""First code with which the slice that leads first is killed after it has saved the last step."""


@pytest.mark.complete
def test_a_run_ends_although_the_slice_that_leads_is_lost_after_the_last_save(tmp_path: Path):
    code = first_code(tmp_path / "site", KILLED_AT_THE_END)
    with Slices(job_of(tmp_path / "storage", steps=10), tmp_path / "logs", code) as slices:
        codes = slices.codes()
    assert sorted(code for each in codes.values() for code in each) == [-signal.SIGKILL, ExitCode.DONE, ExitCode.DONE]
    assert sorted(losses(slices.lines)) == [*range(1, 11)]


@pytest.mark.complete
def test_a_slice_that_is_told_to_stop_leaves_and_the_others_go_on(tmp_path: Path):
    with Slices(job_of(tmp_path / "storage"), tmp_path / "logs", first_code(tmp_path / "site", GATED)) as slices:
        slices.until_step(5, SECONDS)
        slices.hosts[1][0].process.send_signal(signal.SIGTERM)
        left = slices.hosts[1][0].process.wait(SECONDS)
        slices.bring_back(1, SECONDS)
        codes = slices.codes(SECONDS)
        lines = slices.lines

    assert left == ExitCode.PREEMPTED
    assert codes == {one: [ExitCode.DONE] for one in range(3)}
    assert sorted(losses(lines)) == [*range(1, 61)]


@pytest.mark.complete
def test_a_job_whose_slices_are_all_told_to_stop_saves_and_continues_from_there(
    tmp_path: Path, uninterrupted: list[str]
):
    job = job_of(tmp_path / "storage")
    with Slices(job, tmp_path / "logs", first_code(tmp_path / "site", UNHURRIED)) as slices:
        slices.until_step(5)
        for one in range(3):
            slices.hosts[one][0].process.send_signal(signal.SIGTERM)
        assert {code for each in slices.codes().values() for code in each} == {ExitCode.PREEMPTED}
        before = losses(slices.lines)
    with Slices(job, tmp_path / "logs-2", {}, restarts=1) as slices:
        assert {code for each in slices.codes().values() for code in each} == {ExitCode.DONE}
        (began,) = parsed(RunStarted, slices.lines)
        after = losses(slices.lines)

    assert (began.outcome, began.step) == ("resumed", max(before))
    assert before | after == pytest.approx(losses(uninterrupted), rel=1e-5)


@pytest.mark.complete
def test_below_the_quorum_the_others_wait_with_their_state_saved(tmp_path: Path):
    job = job_of(tmp_path / "storage")
    job = validated(job, slices=job.slices.model_dump() | {"min_count": 3})
    with Slices(job, tmp_path / "logs", first_code(tmp_path / "site", UNHURRIED)) as slices:
        slices.until_step(5)
        slices.kill(2)
        slices.until("2 of at least 3 slices are there")
        slices.until("checkpoint at step")
        done = max(slices.steps)
        time.sleep(1)
        assert max(slices.steps) == done
        slices.start(2)
        assert slices.codes() == {one: [ExitCode.DONE] for one in range(3)}
        assert sorted(losses(slices.lines)) == [*range(1, 61)]


@pytest.mark.complete
def test_a_frozen_slice_is_left_out_and_joins_again_when_it_moves(tmp_path: Path):
    job = job_of(tmp_path / "storage", steps=100)
    with Slices(job, tmp_path / "logs", first_code(tmp_path / "site", UNHURRIED)) as slices:
        slices.until_step(5)
        pids = slices.pids(0, 1, 2)
        slices.hosts[1][0].process.send_signal(signal.SIGSTOP)
        slices.until("lost 1")
        slices.hosts[1][0].process.send_signal(signal.SIGCONT)
        slices.until("joined 1")
        assert slices.codes() == {one: [ExitCode.DONE] for one in range(3)}
        assert slices.pids(0, 1, 2) == pids
        assert sorted(losses(slices.lines)) == [*range(1, 101)]


@pytest.mark.complete
def test_a_state_that_arrives_damaged_is_taken_from_another_slice(tmp_path: Path):
    storage, code = tmp_path / "storage", start_code(tmp_path / "site", FIRST_DAMAGED)
    with Slices(job_of(storage), tmp_path / "logs", code) as slices:
        assert slices.codes() == {one: [ExitCode.DONE] for one in range(3)}
        assert sorted(losses(slices.lines)) == [*range(1, 61)]

    warnings = [event["message"] for event in events(storage, "warning")]
    assert len([each for each in warnings if "arrived damaged" in each]) == 2
    assert not any(event.get("stored") for event in events(storage, "restore"))


@pytest.mark.complete
def test_a_slice_at_which_every_state_arrives_damaged_continues_from_a_checkpoint_of_that_very_step(tmp_path: Path):
    storage, code = tmp_path / "storage", first_code(tmp_path / "site", f"{GATED}\n{ALL_DAMAGED}")
    job = job_of(storage, save_every_steps=20)
    with Slices(job, tmp_path / "logs", code) as slices:
        slices.until_step(8, SECONDS)
        slices.lose_and_return(1, SECONDS)
        codes, lines = slices.codes(SECONDS), slices.lines

    assert {code for each in codes.values() for code in each} == {ExitCode.DONE}
    assert sorted(losses(lines)) == [*range(1, 61)]
    # The slices compare their states at each save, so a wrong one would end the job.
    assert {event["step"] for event in events(storage, "slices_agree")} >= {20, 40, 60}
    stored = [event for event in events(storage, "restore") if event.get("stored")]
    assert {event["step"] for event in stored} <= {saved.step for saved in parsed(CheckpointSaved, lines)}
    (back,) = {event["step"] for event in stored if event["step"]}
    assert back >= 8
    assert not [event for event in events(storage, "restore") if "donor" in event and not event["stored"]]


@pytest.mark.complete
def test_a_group_of_which_all_slices_are_lost_continues_from_the_checkpoint(tmp_path: Path, uninterrupted: list[str]):
    job = job_of(tmp_path / "storage", save_every_steps=5)
    with Slices(job, tmp_path / "logs", first_code(tmp_path / "site", UNHURRIED)) as slices:
        slices.until("checkpoint at step 5 saved")
        for one in range(3):
            slices.kill(one)
        for one in range(3):
            slices.start(one)
        assert slices.codes() == {one: [ExitCode.DONE] for one in range(3)}
        started = [began.outcome for began in parsed(RunStarted, slices.lines)]
        found = losses(slices.lines)

    assert started == ["new", "resumed"]
    assert found == pytest.approx(losses(uninterrupted), rel=1e-5)


@pytest.mark.complete
def test_a_step_whose_checkpoint_was_damaged_is_saved_again(tmp_path: Path):
    job = job_of(tmp_path / "storage", steps=8, save_every_steps=4)
    with Slices(job, tmp_path / "first", {}) as slices:
        assert {code for each in slices.codes().values() for code in each} == {ExitCode.DONE}
    (saved,) = (tmp_path / "storage").glob("runs/*/checkpoints/8/state")
    largest = max((path for path in saved.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:100])
    with Slices(job, tmp_path / "second", {}, restarts=1) as slices:
        assert {code for each in slices.codes().values() for code in each} == {ExitCode.DONE}
        lines = slices.lines
    assert parsed(RunStarted, lines)[0].step == 4
    assert [one.step for one in parsed(CheckpointSaved, lines)] == [8]
