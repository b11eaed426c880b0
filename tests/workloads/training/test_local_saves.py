"""Runs that keep their newest state in the memory of their pod, and end without a save."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from tests.workloads.hosts import wait_until
from tests.workloads.jobs import changed, small_job
from tests.workloads.training.running import Capture, losses, parsed, stopped, trained
from workloads.progress import (
    CheckpointSaved,
    LocalCheckpointWritten,
    RestoredLocally,
    RolledBack,
    RunStarted,
    SettingsChanged,
)
from workloads.spec import JobSpec
from workloads.training.data import Batches
from workloads.training.failures import ReplicasDiffer
from workloads.training.step import CompiledProgram

pytestmark = pytest.mark.costs(cpu_seconds=30)

EVERY_STEP: dict[str, Any] = {"local_save_every_steps": 1, "save_every_steps": 4}


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "memory"
    monkeypatch.setenv("LOCAL_CHECKPOINTS", str(folder))
    return folder


def held(memory: Path) -> list[str]:
    return sorted(path.name for path in memory.glob("*") if path.name != "partial")


type Crash = Callable[..., list[str]]


@pytest.fixture
def crash(memory: Path, capsys: Capture) -> Crash:
    def crash(job: JobSpec, step: int, newest: int | None = None) -> list[str]:
        """Return the output of an attempt that ends without a save after `step`, when the state of step `newest` is in
        memory. Default: that of `step`."""
        take = Batches.training

        def killed(self: Batches, number: int) -> Any:
            if number == step:
                wait_until(lambda: f"0-{newest or step}" in held(memory))
                raise ReplicasDiffer("a crash")
            return take(self, number)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Batches, "training", killed)
            with pytest.raises(ReplicasDiffer, match="a crash"):
                trained(job, capsys)
        return capsys.readouterr().out.splitlines()

    return crash


def lose_arrays(storage: Path) -> None:
    for path in storage.rglob("checkpoints/*/state/**/d/*"):
        path.unlink()


def test_a_run_says_what_its_local_saves_cost_and_goes_on_bit_by_bit_without_the_arrays_in_storage(
    tmp_path: Path, memory: Path, crash: Crash, capsys: Capture
) -> None:
    uninterrupted = losses(trained(small_job(tmp_path / "one"), capsys))
    job = small_job(tmp_path / "two", **EVERY_STEP)
    first = crash(job, 6)
    assert held(memory) == ["0-5", "0-6"]
    (written,) = parsed(LocalCheckpointWritten, first)
    assert written.step == 1
    assert written.mib > 0
    steps = [json.loads(line) for line in (tmp_path / "two/runs/run-1/steps/0-0.jsonl").read_text().splitlines()]
    assert ["local_save_seconds" in line for line in steps] == [False, *[True] * (len(steps) - 1)]
    assert 0 < steps[1]["local_save_seconds"] < 60
    lose_arrays(tmp_path / "two")
    second = trained(job, capsys)
    assert parsed(RestoredLocally, second) == [RestoredLocally(step=6, hosts=1, of_hosts=1, saved=4)]
    assert parsed(RunStarted, second) == [RunStarted("run-1", "resumed", 6, 8)]
    assert losses(first) | losses(second) == uninterrupted
    assert not losses(first).keys() & losses(second).keys()
    events = [json.loads(line) for line in (tmp_path / "two/runs/run-1/ledger/1-0.jsonl").read_text().splitlines()]
    (restore,) = [event for event in events if event["event"] == "restore"]
    assert (restore["source"], restore["step"], restore["batch"]) == ("memory", 6, 6)


@pytest.mark.parametrize(
    ("every", "after", "new_pod", "resumed"),
    [
        pytest.param(1, 2, False, 2, id="from memory without any checkpoint in storage"),
        pytest.param(3, 7, False, 6, id="from the last local save"),
        pytest.param(1, 6, True, 4, id="in a new pod from the checkpoint in storage"),
    ],
)
def test_a_run_goes_on(
    every: int, after: int, new_pod: bool, resumed: int, tmp_path: Path, memory: Path, crash: Crash, capsys: Capture
) -> None:
    job = small_job(tmp_path, **{**EVERY_STEP, "local_save_every_steps": every})
    crash(job, after, newest=after // every * every)
    if new_pod:
        shutil.rmtree(memory)
    assert parsed(RunStarted, trained(job, capsys)) == [RunStarted("run-1", "resumed", resumed, 8)]


def test_an_attempt_from_memory_compares_its_settings_and_saves_to_storage_on_sigterm(
    tmp_path: Path, crash: Crash, capsys: Capture
) -> None:
    job = small_job(tmp_path, **EVERY_STEP)
    crash(job, 6)
    changes = {"optimizer": {"learning_rate": 1e-4}, "storage": {"allow_changes": ("optimizer.learning_rate",)}}
    lines = stopped(changed(job, **changes), 6, capsys, resumed=6)
    assert [change.step for change in parsed(SettingsChanged, lines)] == [6]
    assert [saved.step for saved in parsed(CheckpointSaved, lines)] == [6]


def test_a_rollback_leaves_no_state_of_a_later_step_in_memory(
    tmp_path: Path, memory: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, take, spoilt = CompiledProgram.step, Batches.training, {6}
    before: dict[int, list[str]] = {}

    def damaged(self: CompiledProgram, state: Any, batch: jax.Array) -> Any:
        if int(state.batch) in spoilt:
            spoilt.clear()
            state.parameters["final_scale"] = state.parameters["final_scale"] * np.nan
        return step(self, state, batch)

    def seen(self: Batches, number: int) -> Any:
        before[number] = held(memory)
        return take(self, number)

    monkeypatch.setattr(CompiledProgram, "step", damaged)
    monkeypatch.setattr(Batches, "training", seen)
    job = small_job(tmp_path, **EVERY_STEP, max_skipped_steps=1, max_rollbacks=1, keep_checkpoints=9)
    (rolled,) = parsed(RolledBack, trained(job, capsys))
    assert (rolled.step, rolled.last_left_out) == (4, 7)
    # Steps that were skipped are not kept, and those before them not after the rollback.
    assert before[7][-1] == "0-6"
    assert before[8] == []
