import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from etils import epath

from tests.workloads.hosts import wait_until
from tests.workloads.training.running import ALONE
from workloads.training import writer
from workloads.training.failures import (
    Diverged,
    HostMissing,
    InvalidSpec,
    NoCheckpoint,
    PathTaken,
    Preempted,
    ReplicasDiffer,
    SaveFailed,
    TrainingStopped,
)
from workloads.training.writer import Lease, Writer


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "RENEWED_EVERY_SECONDS", 0.05)
    monkeypatch.setattr(writer, "EXPIRES_SECONDS", 1.0)
    monkeypatch.setattr(writer, "LOOKS_EVERY_SECONDS", 0.02)


def never(error: TrainingStopped) -> None:
    raise AssertionError(error)


def of(folder: Path, run_id: str, start: int = 0, lost: Callable[[TrainingStopped], None] = never) -> Writer:
    return Writer(epath.Path(folder / "job"), run_id, start, ALONE, lost)


def lease(folder: Path) -> Path:
    return folder / "job" / "writer.json"


def found(folder: Path) -> Lease:
    return Lease(**json.loads(lease(folder).read_text()))


def left_by(folder: Path, run_id: str, error: BaseException | None, start: int = 0) -> None:
    """Write the lease after an exit with `error`."""
    entered = of(folder, run_id, start).__enter__()
    entered.__exit__(type(error) if error else None, error, None)


def seconds_to_enter(entered: Writer) -> float:
    began = time.monotonic()
    with entered:
        return time.monotonic() - began


def test_a_second_submission_is_refused_with_the_name_of_the_first(tmp_path: Path) -> None:
    fault = "is written by run first, last heard of at .* run second would spoil it"
    with of(tmp_path, "first"), pytest.raises(InvalidSpec, match=fault):
        of(tmp_path, "second").__enter__()


@pytest.mark.parametrize("error", [None, InvalidSpec("x"), Diverged("x"), NoCheckpoint("x"), Preempted("saved")])
def test_the_next_submission_does_not_wait_after_an_end_that_is_followed_by_no_restart_at_once(
    tmp_path: Path, error: TrainingStopped | None
) -> None:
    left_by(tmp_path, "first", error)
    assert seconds_to_enter(of(tmp_path, "second")) < 0.9


@pytest.mark.parametrize("error", [ReplicasDiffer("x"), SaveFailed("x"), HostMissing("x"), ValueError("a crash")])
def test_a_restart_that_is_to_come_finds_the_path_kept_for_it(tmp_path: Path, error: Exception) -> None:
    left_by(tmp_path, "first", error)
    assert seconds_to_enter(of(tmp_path, "first", 1)) < 0.9
    left_by(tmp_path, "first", error, start=1)
    assert seconds_to_enter(of(tmp_path, "second")) > 0.9


@pytest.mark.parametrize("ahead", [-1000.0, 1000.0, None], ids=["late clock", "early clock", "cut lease"])
def test_what_a_killed_submission_left_expires_whatever_it_says(tmp_path: Path, ahead: float | None) -> None:
    left_by(tmp_path, "first", ValueError("killed"))
    text = '{"run' if ahead is None else json.dumps(asdict(replace(found(tmp_path), time=time.time() + ahead)))
    lease(tmp_path).write_text(text)
    assert seconds_to_enter(of(tmp_path, "second")) > 0.9


def test_one_that_is_killed_while_another_waits_is_waited_for(tmp_path: Path) -> None:
    first = of(tmp_path, "first").__enter__()
    killed = threading.Timer(0.5, first.__exit__, (ValueError, ValueError("killed"), None))
    began = time.monotonic()
    killed.start()
    with of(tmp_path, "second"):
        assert time.monotonic() - began > 1.4
    killed.join()


def test_a_submission_that_comes_back_to_a_path_that_another_took_over_is_never_refused_for_good(
    tmp_path: Path,
) -> None:
    left_by(tmp_path, "first", Preempted("evicted"))
    left_by(tmp_path, "second", Preempted("evicted"))
    with of(tmp_path, "third"), pytest.raises(PathTaken, match="by run third, .* run first, which wrote there before"):
        of(tmp_path, "first").__enter__()
    with of(tmp_path, "first"):
        assert found(tmp_path).earlier == ["second", "third"]


def test_of_two_processes_of_one_start_the_later_one_goes_on_and_keeps_the_lease(tmp_path: Path) -> None:
    failures: list[TrainingStopped] = []
    cut_off = of(tmp_path, "first", 0, failures.append).__enter__()
    with of(tmp_path, "first"):
        wait_until(lambda: failures)
        assert isinstance(failures[0], PathTaken)
        assert "another attempt of run first writes" in str(failures[0])
        cut_off.__exit__(None, None, None)
        assert not found(tmp_path).left
    assert found(tmp_path).left


def test_an_earlier_start_ends_and_its_last_word_does_not_end_the_later_one(tmp_path: Path) -> None:
    failures: list[TrainingStopped] = []
    with of(tmp_path, "first", 0, failures.append):
        earlier = lease(tmp_path).read_text()
        with of(tmp_path, "first", 1):
            lease(tmp_path).write_text(earlier)
            wait_until(lambda: failures and found(tmp_path).start == 1)
    assert isinstance(failures[0], PathTaken)
    with of(tmp_path, "first", 2), pytest.raises(PathTaken, match="this one was cut off"):
        of(tmp_path, "first", 1).__enter__()


def test_whoever_reads_the_lease_finds_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "RENEWED_EVERY_SECONDS", 0.0001)
    with of(tmp_path, "first"):
        assert {found(tmp_path).run_id for _ in range(300)} == {"first"}


def test_storage_that_fails_for_a_while_costs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with of(tmp_path, "first"):
        lease(tmp_path).unlink()
        lease(tmp_path).mkdir()
        said: list[str] = []
        wait_until(lambda: said.append(capsys.readouterr().out) or "cannot be renewed, trying again" in "".join(said))
        lease(tmp_path).rmdir()
        wait_until(lambda: lease(tmp_path).is_file())
        assert found(tmp_path).run_id == "first"
