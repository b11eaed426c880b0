"""Which end caused the others, by pods, events and records."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.observed.causes import HostEnd, first_cause, from_text, to_text
from cli.observed.files import Failure, Files
from cli.observed.observe import Observer
from cli.observed.snapshot import JobStatus
from infra.cluster.job_pods import newest
from infra.cluster.job_state import Kind
from infra.stack.names import RESTARTS_ANNOTATION
from tests.cli import api_objects
from tests.cli.api_objects import EVENTS, JOBS, JOBSETS, PODS, START, WORKLOADS, pod
from tests.cli.api_server import Played
from tests.cli.explain.cases import JOB
from tests.cli.standing import stack
from tests.workloads.report.runs import Facts, event, write_run

KILLED = "Container trainer for pod research/tiny-slice-{}-abcde failed with exit code 137 matching FailJob rule"


def told(at: float, name: str, uid: str, message: str, reason: str = "PodFailurePolicy") -> dict[str, Any]:
    """Return a warning about a Job, or about a pod of the node `sick`."""
    kind = "Pod" if name.count("-") > 2 else "Job"
    return {
        "metadata": {"name": f"{name}.{at}", "uid": f"{name}.{at}"},
        "involvedObject": {"kind": kind, "name": name, "uid": uid},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "source": {"host": "sick"} if kind == "Pod" else {},
        "firstTimestamp": api_objects.time(at),
        "lastTimestamp": api_objects.time(at),
    }


def created(at: float, name: str, uid: str, pod_name: str) -> dict[str, Any]:
    return told(at, name, uid, f"Created pod: {pod_name}", "SuccessfulCreate") | {"type": "Normal"}


def current(name: str, uid: str, attempt: int) -> dict[str, Any]:
    """Return a Job that exists."""
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "tiny",
        "jobset.sigs.k8s.io/replicatedjob-name": "slice",
        "jobset.sigs.k8s.io/restart-attempt": str(attempt),
    }
    return {"metadata": {"name": name, "uid": uid, "labels": labels}}


def seen(server: Played, folder: Path) -> JobStatus:
    return next(job for job in Observer(stack(server, folder)).look("tiny").jobs if job.ref.name == "tiny")


def words(job: JobStatus) -> list[str]:
    ends = [first_cause(job, attempt) for attempt in range(job.restarts)]
    return [end.words(job.kind) if end else "unknown" for end in ends]


def restarted(server: Played, count: int, *events: dict[str, Any]) -> None:
    """Let the job have restarted, with new pods and these events."""
    server.collections[EVENTS] = [*events]
    server.change(JOBSETS, api_objects.jobset(restarts=count))
    server.collections[PODS] = [pod(*host, attempt=count, created=200) for host in api_objects.HOSTS]
    server.collections[JOBS] = [current(f"tiny-slice-{index}", f"{index}-{count}", count) for index in (0, 1)]


def test_a_second_crash_within_two_minutes_is_named_as_what_it_is(server: Played, tmp_path: Path) -> None:
    first = told(60, "tiny-slice-1", "1-0", KILLED.format("1-0"))
    second = told(61, "tiny-slice-0", "0-1", KILLED.format("0-1"))
    others = [created(55, "tiny-slice-0", "0-0", "any"), created(61, "tiny-slice-1", "1-1", "any")]
    restarted(server, 2, first, second, *others)
    assert words(seen(server, tmp_path)) == [
        "host slice-1-0 exited 137 (SIGKILL)",
        "host slice-0-1 exited 137 (SIGKILL)",
    ]


def test_an_earlier_cause_is_never_that_of_a_later_restart(server: Played, tmp_path: Path) -> None:
    restarted(server, 2, told(60, "tiny-slice-1", "1-0", KILLED.format("1-0")), created(62, "tiny-slice-1", "1-1", "x"))
    assert words(seen(server, tmp_path)) == ["host slice-1-0 exited 137 (SIGKILL)", "unknown"]


def test_between_two_attempts_the_newest_job_is_that_of_the_attempt_that_ended(server: Played, tmp_path: Path) -> None:
    restarted(server, 1, told(60, "tiny-slice-1", "1-0", KILLED.format("1-0")))
    server.collections[PODS] = server.collections[JOBS] = []
    assert words(seen(server, tmp_path)) == ["host slice-1-0 exited 137 (SIGKILL)"]


def test_events_of_an_earlier_job_of_the_same_name_are_not_this_jobs(server: Played, tmp_path: Path) -> None:
    restarted(server, 1, told(30, "tiny-slice-1", "earlier", KILLED.format("1-0")))
    assert words(seen(server, tmp_path)) == ["unknown"]


def test_a_node_that_refused_a_pod_is_the_cause(server: Played, tmp_path: Path) -> None:
    refused = told(60, "tiny-slice-1-0-abcde", "p", "no healthy devices present", "UnexpectedAdmissionError")
    job = told(61, "tiny-slice-1", "1-0", "Job has reached the specified backoff limit", "BackoffLimitExceeded")
    restarted(server, 1, created(59, "tiny-slice-1", "1-0", "tiny-slice-1-0-abcde"), refused, job)
    assert words(seen(server, tmp_path)) == ["node sick refused the pod of host slice-1-0"]


def test_a_host_that_ended_because_of_the_restart_is_not_its_cause(server: Played, tmp_path: Path) -> None:
    refused = told(60, "tiny-slice-1-0-abcde", "p", "no healthy devices present", "UnexpectedAdmissionError")
    ended = told(60, "tiny-slice-0", "0-0", KILLED.format("0-0").replace("137", "143"))
    restarted(server, 1, created(59, "tiny-slice-1", "1-0", "tiny-slice-1-0-abcde"), refused, ended)
    assert words(seen(server, tmp_path)) == ["node sick refused the pod of host slice-1-0"]


def start(attempt: int, host: str, *more: Facts) -> list[Facts]:
    about = {"run_id": "uid-tiny", "restart_attempt": attempt, "began": START + 50}
    return [event(START + 55, "start", host=f"tiny-{host}.tiny", **about), *more]


def test_the_records_name_a_host_that_was_killed_when_no_events_are_left(server: Played, tmp_path: Path) -> None:
    stop = event(START + 60, "stop", cause="PeerLost", message="another host is gone", code="PEER_LOST")
    ledgers = {"0-0": start(0, "slice-0-0", stop), "0-2": start(0, "slice-1-0"), "1-0": start(1, "slice-0-0")}
    run = write_run(tmp_path / "tiny", ledgers, {})
    (run.parents[1] / "current.json").write_text(json.dumps({"run": "one"}))
    restarted(server, 1)
    assert words(seen(server, tmp_path)) == ["host slice-1-0 was killed or lost with its machine"]


def test_a_cause_that_only_the_cluster_knew_is_known_after_its_events_are_gone(server: Played, tmp_path: Path) -> None:
    restarted(server, 1, told(60, "tiny-slice-1", "1-0", KILLED.format("1-0")))
    seen(server, tmp_path)
    (workload,) = server.collections[WORKLOADS]
    assert from_text(workload["metadata"]["annotations"][RESTARTS_ANNOTATION])[0].code == 137
    restarted(server, 2)
    assert words(seen(server, tmp_path)) == ["host slice-1-0 exited 137 (SIGKILL)", "unknown"]


def test_who_may_not_keep_a_cause_sees_it_all_the_same(server: Played, tmp_path: Path) -> None:
    (workload,) = server.collections[WORKLOADS]
    server.refused_changes[f"{WORKLOADS}/{workload['metadata']['name']}"] = "no"
    restarted(server, 1, told(60, "tiny-slice-1", "1-0", KILLED.format("1-0")))
    assert words(seen(server, tmp_path)) == ["host slice-1-0 exited 137 (SIGKILL)"]


_ENDLESS = '{"0": {"host": "slice-0-0", "code": Infinity, "at": 1, "evidence": [], "refused_by": ""}}'


@pytest.mark.parametrize(
    "text", ["", "no", "[]", '{"0": {}}', '{"x": 1}', '{"0": {"host": "slice-0-0"}}', _ENDLESS, "[" * 100_000]
)
def test_an_annotation_that_says_nothing_is_ignored(text: str) -> None:
    assert from_text(text) == {}


def test_what_is_kept_is_read_again_even_if_it_is_no_unicode() -> None:
    ends = {1: HostEnd("0/1", None, 2.0, ("evidence \ud800",))}
    assert from_text(to_text(ends)) == ends


def cause(pods: Iterable[dict[str, object]], *records: Failure) -> HostEnd:
    found = first_cause(replace(JOB, created=START, pods=newest(pods, START), files=Files(failures=records)), 0)
    assert found
    return found


def test_the_first_host_that_fails_is_the_cause() -> None:
    ends = [pod(0, 1, "Failed", exit_code=1, ended=62), pod(1, 0, "Failed", exit_code=137, ended=61)]
    assert (cause(ends).host, cause(ends).code) == ("slice-1-0", 137)


def test_a_host_that_only_lost_another_one_is_not_the_cause_although_it_ended_first() -> None:
    ends = [pod(0, 1, "Failed", exit_code=134, ended=61), pod(1, 1, "Failed", exit_code=137, ended=62)]
    assert (cause(ends).host, cause(ends).code) == ("slice-1-1", 137)


def test_a_record_with_fractions_of_a_second_comes_before_pods_that_ended_in_the_same_second() -> None:
    ends = [pod(0, 1, "Failed", exit_code=24, ended=61), pod(1, 1, "Failed", exit_code=24, ended=64)]
    for at in (60, 61.7):
        record = Failure(START + at, "tiny-slice-1-1.tiny", 24, "the step did not end", 0, 0)
        assert cause(ends, record).evidence == ("tiny-slice-1-1.tiny: the step did not end",)


def test_no_single_host_is_named_for_a_preemption_whatever_the_evidence() -> None:
    ends = [pod(0, 1, "Failed", exit_code=143, ended=61), pod(1, 0, "Failed", exit_code=143, ended=62)]
    record = Failure(START + 60, "tiny-slice-1-0.tiny", 143, "SIGTERM", 0, 0)
    trainer = {cause(ends, *records).words(Kind.TRAINING) for records in ((), (record,))}
    assert trainer == {"all hosts exited 143 (preempted)"}
    assert cause(ends).words(Kind.CONTAINER) == "host slice-0-1 exited 143 (SIGTERM)"


def test_a_pod_that_is_being_deleted_is_no_cause() -> None:
    ends = newest([pod(0, 0, deleting=True)], START)
    assert first_cause(replace(JOB, created=START, pods=ends), 0) is None
