"""How a host process ends when it loses another one."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest
from etils import epath

from multislice_run.attempt_facts import AttemptFacts
from multislice_run.ending import Ending, Failure, Others
from workloads.spec import ExitCode
from workloads.training.joining import HostProcess
from workloads.training.runtime import Processes


@dataclass(frozen=True)
class Joined(Processes):
    """One of several processes, of which another one has published a failure."""

    published: dict[str, Any] | None = None

    def read_failure(self) -> dict[str, Any] | None:
        return self.published


class Ended(Exception):  # noqa: N818 - not an error
    """The process would have ended."""


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Failure, Others | None]]:
    """How the process ended, and whom it told."""
    found: list[tuple[Failure, Others | None]] = []

    def fail(_: Ending, failure: Failure, others: Others | None = None) -> NoReturn:
        found.append((failure, others))
        raise Ended

    monkeypatch.setattr(Ending, "fail", fail)
    return found


def host(folder: Path, published: dict[str, Any] | None = None) -> HostProcess:
    process = HostProcess(
        epath.Path(folder), AttemptFacts("run-1", 0, 0.0, None, 1, None), {"TPU_WORKER_HOSTNAMES": "host-1"}
    )
    process.processes = Joined(1, 3, "host-1", published=published)
    return process


def test_a_host_that_loses_another_names_it_and_tells_the_others(
    tmp_path: Path, ends: list[tuple[Failure, Others | None]]
) -> None:
    process = host(tmp_path)
    with pytest.raises(Ended):
        process.lose("host-2", 2)
    ((failure, others),) = ends
    assert (failure.code, failure.host, failure.elsewhere) == (ExitCode.PEER_LOST, "host-1", False)
    assert "the connection to host-2 has ended" in failure.cause
    assert others is process.processes


def test_a_host_that_loses_the_leader_can_tell_nobody(
    tmp_path: Path, ends: list[tuple[Failure, Others | None]]
) -> None:
    with pytest.raises(Ended):
        host(tmp_path).lose("host-0", 0)
    assert ends[0][1] is None


@pytest.mark.parametrize(("code", "elsewhere"), [(ExitCode.CRASH, True), (ExitCode.PEER_LOST, False)])
def test_the_failure_of_a_host_counts_before_its_loss(
    tmp_path: Path, ends: list[tuple[Failure, Others | None]], code: ExitCode, elsewhere: bool
) -> None:
    published = {"host": "host-2", "cause": "ValueError: no such row", "code": int(code)}
    with pytest.raises(Ended):
        host(tmp_path, published).lose("host-2", 2)
    # A host that only lost another one keeps its own record, because one without any counts as lost.
    assert (ends[0][0].code, ends[0][0].elsewhere) == (code, elsewhere)


@pytest.mark.parametrize(("code", "written"), [(ExitCode.CRASH, False), (ExitCode.PEER_LOST, True)])
def test_every_host_that_lost_another_leaves_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: ExitCode, written: bool
) -> None:
    def ended(_: int) -> NoReturn:
        raise Ended

    monkeypatch.setattr("multislice_run.ending.os._exit", ended)
    monkeypatch.setattr("multislice_run.ending._linger", lambda _: None)
    told = {"host": "host-2", "cause": "it is gone", "code": int(code)}
    failure = Failure.from_other_host(told, "", "host-1")
    with pytest.raises(Ended):
        Ending(epath.Path(tmp_path), AttemptFacts("run-1", 0, 0.0, None, 1, None), "host-1").fail(failure)
    assert bool([*tmp_path.glob("failures/run-1/*.json")]) == written
