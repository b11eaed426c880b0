"""Slices that were lost while the others of their job went on."""

from dataclasses import replace
from pathlib import Path

from cli.explain.finding import Cause
from cli.observed.files import Failure, Files, read_files
from cli.observed.snapshot import Event, Job, SliceJob
from infra.job_state import Pod
from tests.cli.explain.cases import JOB, findings, pod, said
from tests.workloads.report.runs import began_slice, changed, event, slice_lost_and_back, write_run
from workloads.spec import ExitCode

LOST_AT = 9_100.0
PODS = tuple(pod(f"slice-{one}-{host}") for one in range(3) for host in (0, 1))
CONTINUING = replace(JOB, slices=3, hosts=6, fewest_slices=2, pods=PODS)


def without(one: int, *pods: Pod, **changes: object) -> Job:
    """Return the job with other pods of a slice."""
    others = [each for each in PODS if each.slice != one]
    return replace(CONTINUING, pods=(*others, *pods), **changes)


def lost(tmp_path: Path) -> Files:
    """Return the records of a job whose slice 1 was lost and is not back."""
    ledgers = {
        "0-0": [
            began_slice(9_001, 0, at=9_000),
            changed(9_010, 0, "0 1 2", "begun"),
            changed(LOST_AT, 8, "0 2", "lost 1"),
            event(9_900, "save", step=30),
        ],
        "0-1": [began_slice(9_001, 1, at=9_000)],
    }
    write_run(tmp_path, ledgers, {})
    return read_files(str(tmp_path))


def test_a_lost_slice_is_named_with_what_it_recorded_and_what_the_cluster_says(tmp_path: Path) -> None:
    again = pod("slice-1-0", "Pending", node="", waits_for="0/8 nodes are available")
    record = Failure(LOST_AT - 1, "tiny-slice-1-0.tiny", ExitCode.BAD_HOST, "wrong products", 0, 0)
    message = "Container trainer for pod research/tiny-slice-1-1-abcde failed with exit code 137 matching FailJob"
    told = Event(LOST_AT + 2, "Job", "tiny-slice-1", "PodFailurePolicy", message, True)
    of_slice = SliceJob("tiny-slice-1", 1, 0, 0, (said("Failed", True, "PodFailurePolicy", message),))
    files = replace(lost(tmp_path), failures=(record,))
    job = without(1, again, files=files, events=(told,), slice_jobs=(of_slice,), slice_restarts=(0, 2))
    found = findings(job)[0]
    assert (found.cause, found.since) == (Cause.SLICE_LOST, LOST_AT)
    assert found.what.startswith("Slice 1 was lost and is waiting for nodes; 2 slices of 3 train.")
    assert "It has restarted 2 times." in found.what
    assert "host slice-1-0 exited 23 (bad host)" in found.evidence[1]
    assert "slice-1-0: 0/8 nodes are available" in found.evidence
    assert any(line.startswith("Job tiny-slice-1: ") for line in found.evidence)


def test_a_slice_whose_hosts_run_is_joining_until_it_has_the_state(tmp_path: Path) -> None:
    found = findings(replace(CONTINUING, files=lost(tmp_path)))[0]
    assert found.what.startswith("Slice 1 was lost and is joining")


def test_a_slice_that_was_killed_is_reported_by_its_pod_before_the_records_know() -> None:
    killed = pod("slice-2-0", "Failed", exit_code=137, ended=LOST_AT)
    found = findings(without(2, killed, PODS[-1]))[0]
    assert found.what.startswith("Slice 2 was lost and is restarting; 2 slices of 3 train.")
    assert found.evidence[0].startswith("host slice-2-0 exited 137 (SIGKILL)")


def test_slices_that_have_returned_are_reported_with_the_time_that_they_were_away(tmp_path: Path) -> None:
    slice_lost_and_back(tmp_path)
    found = findings(replace(CONTINUING, created=0.0, files=read_files(str(tmp_path))))
    (back,) = [each for each in found if each.cause is Cause.SLICE_LOST]
    assert back.what == "Slice 0 was lost after step 4 and was back 7.6 s later."
    assert back.since == 15.0


def test_a_job_whose_slices_stop_together_has_no_lost_slice() -> None:
    job = without(1, pod("slice-1-0", "Pending"), fewest_slices=None)
    assert Cause.SLICE_LOST not in [each.cause for each in findings(job)]
