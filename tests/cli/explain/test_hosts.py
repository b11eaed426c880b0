"""One job for each way to end or to go on, and what is said of it."""

from dataclasses import replace
from typing import Any

from cli.observed.files import Failure, Files
from cli.observed.snapshot import Event, JobStatus
from infra.cluster.job_state import Kind
from tests.cli.explain.cases import JOB, NOW, PODS, explained, said, training
from tests.cli.shown import check
from workloads.spec import ExitCode

_SUSPENDED = Failure(9_050.0, "slice-0-1", ExitCode.PREEMPTED, "SIGTERM", 0, 0)
_LOST = Failure(9_100.0, "slice-0-0", ExitCode.PEER_LOST, "another host is gone", 0, 1)
_CRASHED = Failure(9_101.0, "slice-1-1", ExitCode.CRASH, "ValueError: no such row", 0, 1)
_EARLIER = Failure(100.0, "slice-0-1", ExitCode.OUT_OF_MEMORY, "of an earlier job of that name", 0, 0)
_DIVERGED = Failure(9_100.0, "slice-0-0", ExitCode.DIVERGED, "loss is nan", 1, 1)
_RAISED = Failure(9_100.0, "slice-0-0", ExitCode.FUNCTION_RAISED, "ValueError", 0, 1)
_OVER = said("Failed", True, "FailJobSetFailurePolicyAction", "jobset failed")
_NOW = training(step=5, steps=9, step_ms=1000.0, restarts=1, last_step_at=NOW - 1)
_RESTARTED = replace(JOB, pods=PODS, restarts=1)
_PROGRAM = replace(JOB, kind=Kind.CONTAINER, pods=PODS)
_OTHER_TEAMS = replace(JOB, ref=replace(JOB.ref, namespace="product"))


def _refusal(attempt: int, at: float) -> Event:
    message = "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices google.com/tpu"
    return Event(at, "Pod", f"tiny-slice-1-0-{attempt}", "UnexpectedAdmissionError", message, PODS[2].node, attempt)


def _killed(created: float, *failures: Failure) -> JobStatus:
    killed = replace(PODS[2], phase="Failed", exit_code=137, created=created)
    return replace(JOB, terminal="Failed", pods=(killed,), files=Files(failures=failures))


def _quiet(step_seconds: float, seconds: float) -> JobStatus:
    now = training(step=5, steps=9, step_ms=1000 * step_seconds, last_step_at=NOW - seconds)
    return replace(JOB, pods=PODS, files=Files(now))


def _exited(code: int) -> JobStatus:
    return replace(_PROGRAM, terminal="Failed", pods=(replace(PODS[0], exit_code=code, phase="Failed"),))


CASES: dict[str, tuple[JobStatus, dict[str, Any]]] = {
    "the host that failed first ended those that lost it": (
        replace(_RESTARTED, files=Files(_NOW, failures=(_LOST, _CRASHED, _EARLIER))),
        {},
    ),
    "a command has the team if another one has a job of that name": (
        replace(_RESTARTED, files=Files(failures=(_CRASHED,))),
        {"jobs": (_RESTARTED, _OTHER_TEAMS)},
    ),
    "a node that refuses pods": (
        replace(JOB, pods=PODS[:2], restarts=3, events=tuple(_refusal(each, NOW - 10 + each) for each in (2, 1, 0))),
        {},
    ),
    "a node that took the pods in the end": (replace(_RESTARTED, events=(_refusal(0, NOW - 10),)), {}),
    "of the host that failed no evidence is left": (replace(_RESTARTED, files=Files(failures=(_LOST,))), {}),
    "a start before this one of the same attempt ended otherwise": (_killed(PODS[2].created, _SUSPENDED, _LOST), {}),
    "a record older than the pods": (_killed(9_080.0, _SUSPENDED), {}),
    "restarts without evidence": (replace(_RESTARTED, restarts=2), {}),
    "a job that failed": (
        replace(JOB, terminal="Failed", restarts=1, conditions=(_OVER,), files=Files(failures=(_DIVERGED,))),
        {},
    ),
    "quiet for 10 steps": (_quiet(30.0, 300.0), {}),
    "quiet for more than 20 steps": (_quiet(30.0, 601.0), {}),
    "quiet for many steps within a minute": (_quiet(0.1, 30.0), {}),
    "quiet for many steps and more than a minute": (_quiet(0.1, 61.0), {}),
    "a program of one's own is not said to train": (_PROGRAM, {}),
    "a program of one's own that is complete": (replace(_PROGRAM, pods=(), terminal="Completed"), {}),
    "the exit code of a program is its own": (_exited(22), {}),
    "but for that of a signal": (_exited(137), {}),
    "a call that failed is not submitted again": (
        replace(JOB, kind=Kind.FUNCTION, terminal="Failed", files=Files(failures=(_RAISED,))),
        {},
    ),
}


def test_what_is_said_of_hosts_is_what_the_golden_file_says() -> None:
    check("explained-hosts", explained(CASES))
