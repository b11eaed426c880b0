"""How a host process ends when it loses another one."""

from pathlib import Path
from typing import NoReturn

import pytest
from etils import epath

from multislice_run.attempt_facts import AttemptFacts
from multislice_run.ending import Ending, Failure, Others
from workloads.spec import ExitCode
from workloads.training.joining import HostProcess
from workloads.training.runtime import Processes

START = AttemptFacts("run-1", 0, 0.0, None, 1, None)


class Ended(Exception):  # noqa: N818 - not an error
    """The process would have ended."""


@pytest.mark.parametrize(
    ("lost", "published", "code", "elsewhere", "told"),
    [
        pytest.param(2, None, ExitCode.PEER_LOST, False, True, id="another host"),
        pytest.param(0, None, ExitCode.PEER_LOST, False, False, id="the leader, without whom it can tell no one"),
        pytest.param(2, ExitCode.CRASH, ExitCode.CRASH, True, True, id="a host that has published its failure"),
        # A host that only lost another one keeps its own record, because one without any counts as lost.
        pytest.param(2, ExitCode.PEER_LOST, ExitCode.PEER_LOST, False, True, id="a host that has lost another one"),
    ],
)
def test_a_host_ends_with_the_first_cause_when_it_loses(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lost: int,
    published: ExitCode | None,
    code: ExitCode,
    elsewhere: bool,
    told: bool,
) -> None:
    found: list[tuple[Failure, Others | None]] = []

    def fail(_: Ending, failure: Failure, others: Others | None = None) -> NoReturn:
        found.append((failure, others))
        raise Ended

    monkeypatch.setattr(Ending, "fail", fail)
    other = published and {"host": "host-2", "cause": "ValueError: no such row", "code": int(published)}
    monkeypatch.setattr(Processes, "read_failure", lambda _: other)
    process = HostProcess(epath.Path(tmp_path), START, {"TPU_WORKER_HOSTNAMES": "host-1"})
    process.processes = Processes(1, 3, "host-1")
    with pytest.raises(Ended):
        process.lose(f"host-{lost}", lost)
    ((failure, others),) = found
    assert (failure.code, failure.host, failure.elsewhere) == (code, "host-1", elsewhere)
    assert f"host-{lost}" in failure.cause
    assert (others is process.processes) == told


@pytest.mark.parametrize(("code", "written"), [(ExitCode.CRASH, False), (ExitCode.PEER_LOST, True)])
def test_every_host_that_lost_another_leaves_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: ExitCode, written: bool
) -> None:
    def ended(_: int) -> NoReturn:
        raise Ended

    monkeypatch.setattr("multislice_run.ending.os._exit", ended)
    monkeypatch.setattr("multislice_run.ending._linger", lambda _: None)
    failure = Failure.from_other_host({"host": "host-2", "cause": "it is gone", "code": int(code)}, "", "host-1")
    with pytest.raises(Ended):
        Ending(epath.Path(tmp_path), START, "host-1").fail(failure)
    assert bool([*tmp_path.glob("failures/run-1/*.json")]) == written
