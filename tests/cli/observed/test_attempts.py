"""What is said of the attempts of a job whose pods stay, by their records and what the cluster has."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from etils import epath

from cli.explain.explain import command as explain
from cli.observed.causes import first_cause
from cli.observed.snapshot import JobStatus, summary
from cli.status import status
from infra.stack.names import RESTARTS_ANNOTATION
from multislice_run.worlds import Ended, Roll, World, Worlds
from tests.cli import api_objects
from tests.cli.api_objects import EVENTS, JOBS, JOBSETS, PODS, START, WORKLOADS, pod
from tests.cli.api_server import Played
from tests.cli.observed.test_causes import KILLED, created, current, seen, told, words
from tests.cli.shown import console, read_output
from tests.cli.standing import stack
from tests.workloads.report.runs import Facts, began, event, failure, step, write_run
from workloads.spec import ExitCode

KILLED_PROCESS = "the process was killed by SIGKILL"


def attempt(number: int, at: float, *more: Facts) -> dict[str, list[Facts]]:
    """Return the ledgers of an attempt that began so many seconds after the start."""

    def ledger(host: str) -> list[Facts]:
        return [began(START + at + 1, number, START + at, host=f"tiny-{host}.tiny", run_id="uid-tiny")]

    opened = event(START + at + 2, "run_started", run="one", outcome="new", step=0, steps=9)
    return {f"{number}-0": [*ledger("slice-0-0"), opened, *more], f"{number}-2": ledger("slice-1-0")}


def ended(number: int, at: float, host: str, code: int, cause: str, began: float) -> Facts:
    return failure(f"tiny-{host}.tiny", cause, code, began=START + began, time=START + at, attempt=number)


def world(number: int, began: float, counted: int = 0) -> World:
    """Return the newest attempt on which the pods agreed, so many seconds after the start."""
    return World(number, [0, 1], [], counted=counted, began=START + began)


def write(folder: Path, newest: World, ledgers: Mapping[str, list[Facts]], *failures: Facts) -> None:
    """Write the files of the job."""
    steps = {"0-0": [step(1, START + 63), step(2, START + 64)]}
    write_run(folder / "tiny", ledgers, steps, *failures, run_id="uid-tiny")
    Worlds(epath.Path(folder / "tiny"), "uid-tiny").form(newest)


def restart_slice(server: Played, index: int, times: int, at: float, *, counts: bool = True) -> None:
    """JobSet has restarted one slice alone, whose new pods it has created at that time."""
    jobset = api_objects.jobset()
    restarts = [times if each == index else 0 for each in (0, 1)]
    of_slices = {"name": "slice", "jobRestarts": restarts}
    if counts:
        of_slices["jobRestartsCountTowardsMax"] = restarts
    jobset["status"]["replicatedJobsStatus"] = [of_slices]
    server.change(JOBSETS, jobset)
    new = [pod(index, host, created=at) for host in (0, 1)]
    for each in new:
        each["metadata"]["labels"]["jobset.sigs.k8s.io/job-restart-attempt"] = str(times)
    of_others = [each for each in server.collections[PODS] if f"-slice-{index}-" not in each["metadata"]["name"]]
    server.collections[PODS] = [*of_others, *new]


def explained(server: Played, folder: Path) -> str:
    shown = console()
    explain(stack(server, folder), "tiny", shown, json=False)
    return re.sub(r"\s+", " ", read_output(shown))


def stated(server: Played, folder: Path) -> str:
    shown = console()
    status(stack(server, folder), "tiny", shown, json=False)
    return re.sub(r"\s+", " ", read_output(shown))


def test_processes_that_were_killed_in_their_pods_are_restarts_of_the_job(server: Played, tmp_path: Path) -> None:
    killed = ended(0, 70, "slice-1-0", 137, KILLED_PROCESS, 60)
    again = ended(1, 90, "slice-0-0", 137, KILLED_PROCESS, 80)
    lost = ended(0, 69, "slice-0-0", ExitCode.PEER_LOST, "another host is gone", 60)
    attempts = attempt(0, 60) | attempt(1, 80) | attempt(2, 100)
    write(tmp_path, world(2, 99.5, counted=2), attempts, killed, again, lost)
    jobset = api_objects.jobset()
    jobset["spec"]["failurePolicy"] = {"maxRestarts": 3}
    server.change(JOBSETS, jobset)
    job = seen(server, tmp_path)
    assert (job.restarts, job.restarts_counted, job.used_up) == (2, 2, False)
    assert words(job) == ["host slice-1-0 exited 137 (SIGKILL)", "host slice-0-0 exited 137 (SIGKILL)"]
    assert "its process was killed, by the kernel for lack of memory or by a user" in explained(server, tmp_path)
    assert "restarts 2, of which 2 of processes and 0 of pods count, each towards 3" in stated(server, tmp_path)


def test_a_pod_that_was_lost_twice_ended_the_attempts_of_those_times(server: Played, tmp_path: Path) -> None:
    attempts = attempt(0, 60) | attempt(1, 80) | attempt(2, 100)
    write(tmp_path, world(2, 100), attempts)
    restart_slice(server, 1, 2, at=95)
    server.collections[JOBS] = [current(f"tiny-slice-{index}", f"{index}", 0) for index in (0, 1)]
    server.collections[EVENTS] = [
        told(70, "tiny-slice-1", "first", KILLED.format("1-0")),
        told(90, "tiny-slice-1", "second", KILLED.format("1-1")),
    ]
    job = seen(server, tmp_path)
    assert (job.restarts, job.restarts_counted) == (2, 2)
    assert words(job) == ["host slice-1-0 exited 137 (SIGKILL)", "host slice-1-1 exited 137 (SIGKILL)"]


def test_the_files_name_a_lost_pod_when_the_cluster_has_forgotten_it(server: Played, tmp_path: Path) -> None:
    lost = ended(0, 70, "slice-0-0", ExitCode.PEER_LOST, "another host is gone", 60)
    write(tmp_path, world(1, 80), attempt(0, 60) | attempt(1, 80), lost)
    restart_slice(server, 1, 1, at=75, counts=False)
    assert words(seen(server, tmp_path)) == ["host slice-1-0 was killed or lost with its machine"]


def test_a_refused_pod_costs_no_attempt_and_is_named_while_the_others_wait(server: Played, tmp_path: Path) -> None:
    killed = told(70, "tiny-slice-1", "old", KILLED.format("1-0"))
    refused = told(76, "tiny-slice-1-0-abcde", "p", "no healthy devices present", "UnexpectedAdmissionError")
    refused |= {"firstTimestamp": api_objects.time(76), "lastTimestamp": api_objects.time(76)}
    write(tmp_path, world(0, 60), attempt(0, 60))
    restart_slice(server, 1, 2, at=90)
    server.collections[EVENTS] = [killed, created(75, "tiny-slice-1", "new", "tiny-slice-1-0-abcde"), refused]
    job = seen(server, tmp_path)
    assert job.restarts == 0
    end = first_cause(job, 0)
    assert end
    assert end.words(job.kind) == "host slice-1-0 exited 137 (SIGKILL)"


def test_what_ended_the_last_attempt_is_the_cause_of_a_job_that_used_up_its_restarts(
    server: Played, tmp_path: Path
) -> None:
    crashes = [ended(n, 70 + 20 * n, "slice-1-0", 1, "ValueError: no such row", 60 + 20 * n) for n in (0, 1)]
    heard = ended(1, 89, "slice-0-0", ExitCode.PEER_LOST, "another host is gone", 80)
    write(tmp_path, world(1, 80, counted=1), attempt(0, 60) | attempt(1, 80), *crashes, heard)
    used_up = Ended(int(ExitCode.RESTARTS_USED_UP), "the job has used up its 1 restarts", START + 91)
    Roll(epath.Path(tmp_path / "tiny"), "uid-tiny", 2).end(used_up)
    jobset = api_objects.jobset(terminal="Failed", message="jobset failed due to FailJobSet", ended=95)
    jobset["spec"]["failurePolicy"] = {"maxRestarts": 1}
    server.change(JOBSETS, jobset)
    server.collections[PODS] = [pod(*host, "Failed", exit_code=28, ended=94) for host in api_objects.HOSTS]
    server.collections[EVENTS] = [
        told(94, f"tiny-slice-{index}", f"{index}", KILLED.format(f"{index}-0").replace("137", "28"))
        for index in (0, 1)
    ]
    job = seen(server, tmp_path)
    assert (job.restarts, job.used_up) == (1, True)
    said = explained(server, tmp_path)
    assert (
        "The job has failed. host slice-1-0 exited 1 (crash): its program crashed. It had used up its 1 restart" in said
    )
    assert "ValueError: no such row" in said
    assert "failed host slice-1-0 exited 1 (crash), and the restarts are used up" in stated(server, tmp_path)


def test_pods_that_waited_in_vain_for_the_next_attempt_are_the_cause_of_the_failure(
    server: Played, tmp_path: Path
) -> None:
    lost = ended(0, 70, "slice-0-0", ExitCode.PEER_LOST, "another host is gone", 60)
    hang = ended(1, 690, "slice-0-0", ExitCode.HANG, "attempt 2 did not begin within 10 minutes", 71)
    write(tmp_path, world(0, 60), attempt(0, 60), lost, hang)
    server.change(JOBSETS, api_objects.jobset(terminal="Failed", ended=700))
    server.collections[PODS] = [pod(*host, "Failed", exit_code=24, ended=691) for host in api_objects.HOSTS]
    assert "attempt 2 did not begin within 10 minutes" in explained(server, tmp_path)


def test_an_attempt_that_has_ended_is_not_shown_as_the_present_one(server: Played, tmp_path: Path) -> None:
    crash = ended(0, 70, "slice-1-0", 1, "ValueError", 60)
    write(tmp_path, world(0, 60), attempt(0, 60), crash)
    job = seen(server, tmp_path)
    found = summary(job, START + 71)
    assert (found.step, found.attempt, found.loss) == (None, None, None)


def test_an_attempt_that_goes_on_without_a_slice_is_the_present_one(server: Played, tmp_path: Path) -> None:
    write(tmp_path, world(0, 60), attempt(0, 60))
    server.collections[PODS] = [pod(0, 0), pod(0, 1), pod(1, 0, "Pending"), pod(1, 1, "Pending")]
    found = summary(seen(server, tmp_path), START + 71)
    assert (found.state, found.step, found.attempt) == ("starting", 2, 1)


@pytest.mark.parametrize("record", ["{", "[]", '{"number": "0"}', '{"number": -1, "slices": [], "pods": []}'])
def test_without_its_files_the_restarts_of_its_slices_count(server: Played, tmp_path: Path, record: str) -> None:
    write(tmp_path, world(0, 60), {})
    (tmp_path / "tiny" / "worlds" / "uid-tiny" / "0").write_text(record)
    restart_slice(server, 1, 1, at=75)
    server.collections[JOBS] = [current("tiny-slice-1", "new", 0)]
    server.collections[JOBS][0]["metadata"]["labels"]["jobset.sigs.k8s.io/job-restart-attempt"] = "1"
    server.collections[EVENTS] = [told(70, "tiny-slice-1", "old", KILLED.format("1-0"))]
    job = seen(server, tmp_path)
    assert (job.restarts, job.restarts_counted) == (1, 1)
    assert words(job) == ["host slice-1-0 exited 137 (SIGKILL)"]
    assert any("worlds/uid-tiny cannot be read" in note for note in job.files.notes)
    (workload,) = server.collections[WORKLOADS]
    assert RESTARTS_ANNOTATION not in workload["metadata"].get("annotations", {})


def test_the_slices_of_a_job_without_an_attempt_are_no_restarts_of_it(server: Played, tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    restart_slice(server, 1, 2, at=75, counts=False)
    assert seen(server, tmp_path).restarts == 0


def test_of_two_pods_of_one_second_the_one_after_more_restarts_is_the_newest(server: Played, tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    old = pod(1, 0, deleting=True)
    old["metadata"] |= {"name": "tiny-slice-1-0-old", "uid": "old"}
    restart_slice(server, 1, 1, at=52)
    server.collections[PODS].insert(0, old)
    job: JobStatus = seen(server, tmp_path)
    assert "old" not in [each.uid for each in job.pods]
