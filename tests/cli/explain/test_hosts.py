"""One job for each way to end or to go on, and what is said of it."""

from dataclasses import replace

import pytest

from cli.explain.explain import explain
from cli.explain.finding import Cause
from cli.observed.files import Failure, Files
from cli.observed.snapshot import Event, Snapshot
from infra.cluster.job_state import Kind
from tests.cli.explain.cases import JOB, NODES, NOW, PODS, findings, only, said, training
from workloads.spec import ExitCode

SUSPENDED = Failure(9_050.0, "slice-0-1", ExitCode.PREEMPTED, "SIGTERM", 0, 0)
LOST = Failure(9_100.0, "slice-0-0", ExitCode.PEER_LOST, "another host is gone", 0, 1)


def test_a_restart_is_reported_by_the_host_that_failed_first_and_not_by_those_that_lost_it() -> None:
    records = (
        LOST,
        Failure(9_101.0, "slice-1-1", ExitCode.CRASH, "ValueError: no such row", 0, 1),
        Failure(100.0, "slice-0-1", ExitCode.OUT_OF_MEMORY, "of an earlier job of that name", 0, 0),
    )
    now = training(step=5, steps=9, step_ms=1000.0, restarts=1, last_step_at=NOW - 1)
    job = replace(JOB, pods=PODS, restarts=1, files=Files(now, failures=records))
    running, restart = findings(job)
    assert (running.cause, running.what) == (Cause.RUNNING, "The job runs: step 5 of 9 in attempt 2, 4.0 s left.")
    assert restart.what == "Restart 1: host slice-1-1 exited 1 (crash): its program crashed."
    assert restart.evidence == ("slice-1-1: ValueError: no such row",)
    assert restart.next == ("read its log: multislice logs tiny -s dev --all --previous",)


def test_a_command_about_a_job_names_the_team_if_another_one_has_a_job_of_that_name() -> None:
    crashed = Files(failures=(Failure(9_101.0, "slice-1-1", ExitCode.CRASH, "ValueError", 0, 1),))
    job = replace(JOB, pods=PODS, restarts=1, files=crashed)
    other = replace(JOB, ref=replace(JOB.ref, namespace="product"))
    for jobs, name in (((job,), "tiny"), ((job, other), "research/tiny")):
        found = explain(Snapshot("dev", "-s dev", "dev", NOW, nodes=NODES, jobs=jobs), job)
        assert found[-1].next == (f"read its log: multislice logs {name} -s dev --all --previous",)


def test_a_host_that_was_killed_is_named_although_the_restart_has_removed_its_pod() -> None:
    lost = Failure(9_100.0, "tiny-slice-0-1.tiny", ExitCode.PEER_LOST, "another host is gone", 0, 1)
    said = "Container trainer for pod research/tiny-slice-{} failed with exit code {} matching FailJob rule at index 3"
    events = (
        Event(9_099.0, "Job", "tiny-slice-0", "PodFailurePolicy", said.format("0-0-abcde", 134), attempt=0),
        Event(9_100.0, "Job", "tiny-slice-1", "PodFailurePolicy", said.format("1-1-fghij", 137), attempt=0),
        # A process of another attempt ended within the same second.
        Event(9_099.0, "Job", "tiny-slice-1", "PodFailurePolicy", said.format("1-0-klmno", 1), attempt=1),
    )
    again = tuple(replace(pod, attempt=1, created=9_105.0) for pod in PODS)
    for records in ((lost,), ()):
        restart = findings(replace(JOB, pods=again, restarts=1, events=events, files=Files(failures=records)))[-1]
        assert restart.what.startswith("Restart 1: host slice-1-1 exited 137 (SIGKILL)")


def refusal(attempt: int, at: float) -> Event:
    message = "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices google.com/tpu"
    return Event(at, "Pod", f"tiny-slice-1-0-{attempt}", "UnexpectedAdmissionError", message, PODS[2].node, attempt)


def test_a_node_that_refuses_pods_is_named_with_how_often_and_how_to_use_another() -> None:
    events = tuple(refusal(attempt, NOW - 10 + attempt) for attempt in (2, 1, 0))
    found, restarted = findings(replace(JOB, pods=PODS[:2], restarts=3, events=events))
    node = PODS[2].node
    assert (found.cause, found.since) == (Cause.POD_REFUSED, NOW - 10)
    assert found.what.startswith(f"Node {node} refused 3 pods of the job before their programs ran.")
    assert "repairs the machine" in found.what
    assert found.next[1].endswith("kubectl cordon -l cloud.google.com/gke-nodepool=pool-1")
    assert restarted.what == f"Restarts 1 to 3: node {node} refused the pod of host slice-1-0 before its program ran."


def test_a_node_that_took_the_pods_in_the_end_is_only_the_cause_of_earlier_restarts() -> None:
    found = findings(replace(JOB, pods=PODS, restarts=1, events=(refusal(0, NOW - 10),)))
    assert [each.cause for each in found] == [Cause.RUNNING, Cause.RESTARTED]


def test_a_host_of_which_no_evidence_is_left_is_the_cause_of_those_that_lost_it() -> None:
    restart = findings(replace(JOB, pods=PODS, restarts=1, files=Files(failures=(LOST,))))[-1]
    assert restart.what == (
        "Restart 1: host slice-0-0 lost the connection to another host: its peer was killed or lost with its machine,"
        " and left no record."
    )


@pytest.mark.parametrize(
    ("failures", "created"),
    [((SUSPENDED, LOST), PODS[2].created), ((SUSPENDED,), 9_080.0)],
    ids=["a start before it of the same attempt", "a record older than the pods"],
)
def test_what_ended_an_earlier_start_did_not_end_this_one(failures: tuple[Failure, ...], created: float) -> None:
    killed = replace(PODS[2], phase="Failed", exit_code=137, created=created)
    job = replace(JOB, terminal="Failed", pods=(killed,), files=Files(failures=failures))
    assert findings(job)[0].what.startswith("The job has failed. host slice-1-0 exited 137 (SIGKILL)")


def test_a_restart_without_evidence_is_counted() -> None:
    found = findings(replace(JOB, pods=PODS, restarts=2))[-1]
    assert found.cause is Cause.RESTARTED
    assert found.what.startswith("The job restarted 2 times for an unknown reason.")


def test_a_failed_job_is_reported_with_its_cause_and_the_way_to_try_again() -> None:
    diverged = Failure(9_100.0, "slice-0-0", ExitCode.DIVERGED, "loss is nan", 1, 1)
    over = said("Failed", True, "FailJobSetFailurePolicyAction", "jobset failed")
    job = replace(JOB, terminal="Failed", restarts=1, conditions=(over,), files=Files(failures=(diverged,)))
    found = findings(job)[0]
    assert found.cause is Cause.FAILED
    assert found.what.startswith("The job has failed. host slice-0-0 exited 22 (diverged): loss or gradients")
    assert found.evidence == ("slice-0-0: loss is nan", "JobSet: FailJobSetFailurePolicyAction: jobset failed")
    assert found.next[-1] == "try again from its last checkpoint: multislice up -s dev --replace '**::job-tiny'"


def test_a_job_that_used_up_its_restarts_is_reported() -> None:
    job = replace(JOB, terminal="Failed", restarts=4, restarts_counted=3)
    assert "It had used up its 3 restarts." in findings(job)[0].what


@pytest.mark.parametrize(
    ("step_seconds", "quiet_seconds", "cause"),
    [(30.0, 300.0, Cause.RUNNING), (30.0, 601.0, Cause.SILENT), (0.1, 30.0, Cause.RUNNING), (0.1, 61.0, Cause.SILENT)],
)
def test_a_job_is_silent_after_the_time_of_20_steps_but_not_within_a_minute(
    step_seconds: float, quiet_seconds: float, cause: Cause
) -> None:
    now = training(step=5, steps=9, step_ms=1000 * step_seconds, last_step_at=NOW - quiet_seconds)
    found = only(replace(JOB, pods=PODS, files=Files(now)))
    assert found.cause is cause


def test_a_program_of_ones_own_is_not_said_to_train() -> None:
    found = only(replace(JOB, kind=Kind.CONTAINER, pods=PODS))
    assert (found.cause, found.what) == (Cause.RUNNING, "All hosts run the program.")
    assert found.next == ("see what they do: multislice logs tiny -s dev --all --since 10m",)
    done = only(replace(JOB, kind=Kind.CONTAINER, terminal="Completed"))
    assert done.what == "The job is complete."


def test_the_exit_codes_of_a_program_are_its_own_but_for_signals() -> None:
    codes = [
        only(
            replace(
                JOB, kind=Kind.CONTAINER, terminal="Failed", pods=(replace(PODS[0], exit_code=code, phase="Failed"),)
            )
        )
        for code in (22, 137)
    ]
    assert "host slice-0-0 exited 22: its program exited with a code of its own." in codes[0].what
    assert "host slice-0-0 exited 137 (SIGKILL): it was killed by the kernel" in codes[1].what
    assert codes[0].next[-1] == "try again: multislice up -s dev --replace '**::job-tiny'"


def test_a_call_that_failed_is_not_submitted_again() -> None:
    raised = Failure(9_100.0, "slice-0-0", ExitCode.FUNCTION_RAISED, "ValueError", 0, 1)
    found = only(replace(JOB, kind=Kind.FUNCTION, terminal="Failed", files=Files(failures=(raised,))))
    assert "the function raised an exception" in found.what
    assert [line for line in found.next if "--replace" in line] == []
