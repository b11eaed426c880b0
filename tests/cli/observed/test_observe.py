"""Against a real server with a stack in it, and files as the trainer leaves them."""

import json
from collections.abc import Generator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.answer import Halt, as_json
from cli.observed.cluster import find_hostless
from cli.observed.files import read_files
from cli.observed.observe import Observer
from cli.observed.snapshot import JobStatus, Snapshot
from infra.cluster.job_state import Kind, State, kind_of
from infra.stack.cost import BILL_OUTPUT, bill
from infra.stack.settings.read import parse
from tests.cli import api_objects
from tests.cli.api_objects import EVENTS, JOBSETS, LOCAL_QUEUES, PODS, QUEUES, WORKLOADS
from tests.cli.api_server import Played, playing
from tests.cli.standing import running, stack, trained, waiting
from tests.infra.recording import Values, run_program, stack_values
from tests.workloads.report.runs import crashed_and_resumed


@pytest.fixture
def server() -> Generator[Played]:
    """A stack whose job runs, and one that waits behind another."""
    played = running()
    other = api_objects.jobset(name="other")
    played.collections[JOBSETS] = [api_objects.jobset(), other]
    first = waiting("first", created=10)
    played.collections[WORKLOADS] = [api_objects.workload(conditions=api_objects.ADMITTED), first, waiting("other")]
    about = {"kind": "JobSet", "name": "tiny"}
    event = {"metadata": {"name": "e", "uid": "e"}, "involvedObject": about, "reason": "Created", "type": "Warning"}
    played.collections[EVENTS] = [event, event | {"involvedObject": {"kind": "Pod", "name": "stranger"}}]
    with playing(played):
        yield played


def named(found: Snapshot, name: str) -> JobStatus:
    return next(job for job in found.jobs if job.ref.name == name)


def test_the_head_of_a_job_is_a_host_of_its_own_and_no_slice(server: Played, tmp_path: Path) -> None:
    server.collections[JOBSETS] = [api_objects.headed()]
    server.change(PODS, api_objects.head())
    job = named(Observer(stack(server, tmp_path)).look("tiny"), "tiny")
    assert (job.slices, job.hosts, job.running) == (2, 4, 4)
    assert (job.heads, job.heads_running, job.state) == (1, 1, State.RUNNING)
    assert [pod.host for pod in job.pods] == ["head-0-0", "slice-0-0", "slice-0-1", "slice-1-0", "slice-1-1"]


def test_a_job_whose_head_does_not_run_yet_is_starting(server: Played, tmp_path: Path) -> None:
    server.collections[JOBSETS] = [api_objects.headed()]
    for head in ([], [api_objects.head("Pending")]):
        server.collections[PODS] = [*(api_objects.pod(*host) for host in api_objects.HOSTS), *head]
        assert named(Observer(stack(server, tmp_path)).look("tiny"), "tiny").state is State.STARTING


def test_a_job_by_hand_whose_pods_have_no_numbers_hides_no_other_job(server: Played, tmp_path: Path) -> None:
    for place, found in enumerate(server.collections[PODS]):
        del found["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]
        found["metadata"]["name"] = f"tiny-slice-{place // 2}-{'zab0'[place]}xyz"
    seen = Observer(stack(server, tmp_path)).look()
    assert [pod.host for pod in named(seen, "tiny").pods] == [
        *("slice-0-axyz", "slice-0-zxyz", "slice-1-0xyz", "slice-1-bxyz")
    ]
    assert (named(seen, "tiny").running, named(seen, "other").position) == (4, 2)


def test_a_job_whose_own_queue_is_stopped_is_paused_once_its_hosts_have_ended(server: Played, tmp_path: Path) -> None:
    queue = {"metadata": {"name": "research.tiny", "uid": "q"}, "spec": {"stopPolicy": "HoldAndDrain"}}
    server.collections[LOCAL_QUEUES] = [queue]
    workload = api_objects.workload(conditions=api_objects.ADMITTED)
    workload["spec"]["queueName"] = "research.tiny"
    server.change(WORKLOADS, workload)
    job = named(Observer(stack(server, tmp_path)).look("tiny"), "tiny")
    assert (job.state, job.ref.queue, job.declared) == (State.RUNNING, "research", True)
    del workload["status"]["admission"]
    assert named(Observer(stack(server, tmp_path)).look("tiny"), "tiny").state is State.EVICTED
    server.collections[PODS] = []
    found = Observer(stack(server, tmp_path)).look()
    assert (named(found, "tiny").state, named(found, "tiny").position) == (State.PAUSED, None)
    assert (named(found, "other").position, named(found, "other").declared) == (2, False)


def test_what_cannot_be_read_is_reported_and_all_else_is_there(server: Played, tmp_path: Path) -> None:
    server.refused[QUEUES] = 403
    found = Observer(stack(server, tmp_path)).look("tiny")
    assert found.notes == ("you may not list clusterqueues.kueue.x-k8s.io",)
    assert (found.answered, found.queues, named(found, "tiny").running) == (True, (), 4)


def test_storage_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "runs").write_text("not a folder")
    (reported,) = read_files(str(tmp_path / "job")).notes
    assert "cannot read its files: NotADirectoryError" in reported


def test_a_job_that_never_began_has_no_figures_and_no_fault(tmp_path: Path) -> None:
    assert read_files(str(tmp_path / "nothing")).notes == ()


def test_a_snapshot_is_json_whatever_its_numbers(server: Played, tmp_path: Path) -> None:
    found = Observer(stack(server, tmp_path)).look()
    answer = json.loads(as_json({"stack": found, "loss": float("nan")}))
    assert (answer["stack"]["stack"], answer["loss"]) == ("dev", None)


@pytest.mark.parametrize(
    ("variable", "kind"), [("JOB_SPEC", Kind.TRAINING), ("CALL_SPEC", Kind.FUNCTION), ("HOME", Kind.CONTAINER)]
)
def test_the_kind_of_a_job_is_that_of_its_containers(variable: str, kind: Kind) -> None:
    found = api_objects.jobset()
    (job,) = found["spec"]["replicatedJobs"]
    job["template"]["spec"]["template"]["spec"]["containers"] = [{"env": [{"name": variable}]}, {"name": "beside it"}]
    assert kind_of(found) is kind


def test_the_hosts_of_all_parts_of_a_job_are_counted(server: Played, tmp_path: Path) -> None:
    found = api_objects.jobset()
    (job,) = found["spec"]["replicatedJobs"]
    other = {"name": "reader", "template": {"spec": {"parallelism": 1, "template": {"spec": {"containers": []}}}}}
    found["spec"]["replicatedJobs"] = [job, other]
    server.change(JOBSETS, found)
    assert named(Observer(stack(server, tmp_path)).look("tiny"), "tiny").hosts == 5


def test_somebody_elses_job_of_the_same_name_is_not_taken_for_the_stacks(server: Played, tmp_path: Path) -> None:
    trained(tmp_path)
    deployed = stack(server, tmp_path)
    theirs = replace(deployed, outputs={**deployed.outputs, "queues": {"research": "research", "product": "product"}})
    twin = api_objects.jobset() | {"metadata": {**api_objects.jobset()["metadata"], "uid": "theirs"}}
    server.collections[JOBSETS.replace("research", "product")] = [twin]
    found = Observer(theirs).look("tiny")
    steps = {job.ref.namespace: job.training.step for job in found.jobs if job.ref.name == "tiny"}
    assert steps == {"research": 5, "product": None}
    observer = Observer(theirs)
    assert observer.job("product/tiny")[1].ref.namespace == "product"
    assert observer.job(None)[1].ref.namespace == "research"
    with pytest.raises(Halt, match="use research/tiny or product/tiny"):
        observer.job("tiny")


POOL = "gcp:container/nodePool:NodePool"


def outputs(values: Values) -> Mapping[str, Any]:
    """Return the outputs in Pulumi's format."""
    reported = bill(parse(values), {}, None).model_dump(exclude={"delta"}, exclude_none=True)
    return json.loads(json.dumps({BILL_OUTPUT: reported}))


def test_slices_have_the_names_of_the_node_pools_that_the_program_declares() -> None:
    values = stack_values("local")
    pools = [pool.inputs["name"] for pool in run_program(values).of_type(POOL)]
    assert {"system", *(find_hostless(outputs(values), []) or {})} == {*pools}


@pytest.mark.parametrize("kind", ["flex-start", "queued"])
def test_slices_that_come_on_request_may_be_away(kind: str) -> None:
    values = stack_values("local")
    values["slices"]["trillium"]["capacity"] = {"kind": kind, "max_run_hours": 2}
    values["job"]["slices"]["count"] = 1
    assert find_hostless(outputs(values), []) == {}


@pytest.mark.parametrize("reported", [{}, {BILL_OUTPUT: {"at_once": {"usd_per_hour": 21.6}}}])
def test_outputs_of_another_version_are_ignored(reported: Mapping[str, Any]) -> None:
    assert find_hostless(reported, []) is None


def test_the_starts_of_a_run_are_listed_with_their_failures(tmp_path: Path) -> None:
    crashed_and_resumed(tmp_path)
    found = read_files(str(tmp_path))
    assert [(start.attempt, start.cause) for start in found.starts] == [(0, "host-1: ValueError: no such row"), (1, "")]
    assert [(fail.host, fail.code, fail.attempt) for fail in found.failures] == [("host-1", 1, 0)]
