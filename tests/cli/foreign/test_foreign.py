"""`list`, `status`, `explain`, `logs` and `report` on clusters that other tools made, through the command line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.deployed import Kubectl, observed_by_kubeconfig
from cli.main import app
from cli.observed.foreign import read_foreign
from cli.observed.observe import Observer, folder_of
from infra.cluster.job_state import Kind, State
from infra.cluster.kubernetes import ApiServer, refusal
from infra.stack.project import ProjectError
from tests.cli.api_server import Played, playing
from tests.cli.foreign.clusters import (
    EVENTS,
    JOBS,
    JOBSETS,
    PODS,
    busy,
    condition,
    foreign,
    job,
    jobset,
    node,
    pod,
    pods,
    waiting,
    workload,
)
from tests.cli.foreign.conftest import Run
from tests.cli.rehearse.clusters import kubeconfig, path, xpk

type Answer = Callable[..., dict[str, Any]]


def test_jobs_of_all_kinds_are_listed_with_their_cluster_queues_and_places(answer: Answer) -> None:
    batch = [job("batch"), workload("batch", 16, kind="Job"), *(pod("batch", host, "Job") for host in range(4))]
    train = [jobset("tuned", metadata={"ownerReferences": [{"kind": "TrainJob", "name": "tuned"}]})]
    others = [workload("tuned", kind="TrainJob"), workload("ray", kind="RayJob")]
    found = answer(foreign(*busy(), *batch, *train, *others), "list")["jobs"]
    assert {each["name"]: (each["object"], each["state"], each["hosts"], each["hosts_running"]) for each in found} == {
        "llama": ("JobSet", "running", 8, 8),
        "eval": ("JobSet", "queued", 8, 0),
        "batch": ("Job", "running", 4, 4),
        "tuned": ("TrainJob", "starting", 8, 0),
        "ray": ("RayJob", "running", 1, 0),
    }
    assert {each["queue"] for each in found} == {"cluster-queue"}
    assert [each["position"] for each in found if each["name"] == "eval"] == [2]
    assert {(each["step"], each["loss"], each["usd"], each["goodput"]) for each in found} == {(None,) * 4}


def test_a_table_has_no_columns_of_what_the_cluster_does_not_know(run: Run) -> None:
    text = run(foreign(*busy()), "list").stdout
    assert "$ so far" not in text
    assert "step" not in text.splitlines()[0]
    assert "not known" in text


def test_the_head_of_a_pathways_job_is_no_slice(answer: Answer) -> None:
    led = jobset("llama")
    head = {"name": "pathways-head", "template": {"spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}}}
    led["spec"]["replicatedJobs"].insert(0, head)
    first = pod("llama")
    first["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] = "pathways-head"
    first["metadata"] |= {"name": "head", "uid": "head"}
    (found,) = answer(foreign(*xpk(), led, workload("llama"), first, *pods("llama")), "list")["jobs"]
    assert (found["hosts"], found["hosts_running"], found["slices"]) == (8, 8, 2)


def test_pods_on_machines_without_chips_are_not_lost(answer: Answer) -> None:
    """Only the nodes of slices are read."""
    for limits, cause in (({"google.com/tpu": 4}, "node lost"), ({}, "running")):
        batch = job("eval", pods=1)
        batch["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": limits}
        objects = [*xpk(), batch, workload("eval", kind="Job"), pod("eval", 0, "Job"), node()]
        assert answer(foreign(*objects), "explain", "eval")["findings"][0]["cause"] == cause


def logged(**owners: str) -> Any:
    played = foreign(*busy(), job("batch"), workload("batch", 16, kind="Job"), pod("batch", 0, "Job"))
    for name, line in owners.items():
        played.logs[name.replace("_", "-")] = [f"2026-01-05T12:00:01.000000000Z {line}"]
    return played


def test_logs_are_those_of_a_jobset_or_of_a_batch_job(run: Run) -> None:
    assert run(logged(llama_slice_job_0_0_abcde="one"), "logs", "llama").stdout == "one\n"
    assert run(logged(batch_0_abcde="two"), "logs", "batch").stdout == "two\n"
    assert run(logged(batch_0_abcde="two"), "logs", "default/batch", "--host", "main-0-0").stdout == "two\n"
    ended = logged(batch_0_abcde="two")
    ended.collections[JOBS][0]["status"] = {"conditions": [condition("Complete")]}
    ended.collections[PODS][-1]["status"]["phase"] = "Succeeded"
    assert run(ended, "logs", "batch", "--follow").stdout == "two\n"


def test_logs_of_a_job_without_numbers_are_those_of_its_pods(run: Run) -> None:
    played = logged(batch_0_abcde="two")
    played.collections[JOBS][0]["spec"]["completionMode"] = "NonIndexed"
    del played.collections[PODS][-1]["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]
    assert run(played, "logs", "batch").stdout == "two\n"


def test_outside_of_projects_the_cluster_is_that_of_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_project(**_: bool) -> str:
        raise ProjectError("there is no project")

    monkeypatch.setattr("cli.options.default_stack", no_project)
    with playing(foreign(*busy())) as played:
        config = kubeconfig(tmp_path, played)
        of_kubeconfig = ApiServer.of_kubeconfig
        monkeypatch.setattr(ApiServer, "of_kubeconfig", lambda file, context: of_kubeconfig(file or config, context))
        for command in ("list", "status", "explain", "logs", "report"):
            words = [] if command in ("list", "status") else ["llama"]
            found = CliRunner().invoke(app, [command, *words, "-o", "json"])
            assert found.exit_code == 0, found.output
            assert "there is no project" in CliRunner().invoke(app, [command, "--engine", "pulumi"]).stderr


def test_the_records_of_a_foreign_job_are_where_it_says(tmp_path: Path) -> None:
    container = {"env": [{"name": "METRICS_ADDRESS", "value": ""}, {"name": "JOB_FOLDER", "value": "gs://theirs/a/b"}]}
    led = jobset("llama", pod={"containers": [container]})
    with playing(foreign(*xpk(), led, jobset("other"))) as played:
        found = observed_by_kubeconfig(Kubectl(kubeconfig(tmp_path, played), None, None))
        jobs = read_foreign(found, 0.0).jobs
    assert [(job.kind, folder_of(found, job)) for job in jobs] == [
        (Kind.TRAINING, "gs://theirs/a/b"),
        (Kind.CONTAINER, None),
    ]


def test_a_job_stays_the_same_when_its_admission_tells_its_queue(tmp_path: Path) -> None:
    played = foreign(*xpk(), jobset("eval", suspend=True), waiting("eval"))
    played.refused |= dict.fromkeys((path("localqueues"), path("localqueues", namespace="default")), 403)
    with playing(played):
        observer = Observer(observed_by_kubeconfig(Kubectl(kubeconfig(tmp_path, played), None, None)))
        seen, job = observer.job("eval")
        played.collections[path("workloads")] = [workload("eval")]
        _, later = observer.again(seen, job)
    assert [(each.state, each.ref.queue) for each in (job, later)] == [
        (State.QUEUED, "multislice-queue"),
        (State.STARTING, "cluster-queue"),
    ]


def test_a_report_tells_what_the_cluster_knows(run: Run, answer: Answer) -> None:
    evicted = condition("Evicted", "Preempted", "Preempted to accommodate a workload", status="False")
    stats = {"schedulingStats": {"evictions": [{"reason": "Preempted", "count": 2}]}, "requeueState": {"count": 3}}
    objects = [*xpk(), jobset("llama", restarts=1), *pods("llama"), node()]
    held = workload("llama", conditions=[evicted], status=stats)
    found = answer(foreign(*objects, held), "report", "llama")
    assert (found["job"], found["state"], found["chips"], found["restarts"]) == ("default/llama", "running", 32, 1)
    assert (found["evictions"], found["requeues"], found["flavors"]) == ({"Preempted": 2}, 3, ["1xv6e-16"])
    assert (found["queued_at"], found["admitted_at"]) == (1767614400.0, 1767614650.0)
    assert (found["usd_per_hour"], found["pods"]) == (pytest.approx(32 * 2.7), {"Running": 8})
    text = run(foreign(*objects, held), "report", "llama").stdout
    assert "32 chips at the on-demand list price in us-east5, $2.70 an hour" in text
    assert "Preempted 2 times" in text


def test_a_report_of_a_readmitted_job_does_not_count_its_earlier_run_as_waiting(run: Run, answer: Answer) -> None:
    again = condition("Evicted", "QuotaReserved", "Previously: Preempted by another", status="False")
    held = workload("llama", conditions=[again])
    text = run(foreign(*xpk(), jobset("llama"), held), "report", "llama").stdout
    assert not [line for line in text.splitlines() if line.startswith("admitted") and "later" in line]
    leaving = workload("llama", conditions=[condition("Evicted", "Preempted", "Preempted by another")])
    text = run(foreign(*xpk(), jobset("llama", suspend=True), leaving), "report", "llama").stdout
    assert [line for line in text.splitlines() if line.startswith("admitted") and "later" in line]
    assert answer(foreign(*xpk(), jobset("llama"), held), "report", "llama")["last_eviction"] == "Preempted by another"


def test_a_price_is_unknown_for_the_right_reason(answer: Answer) -> None:
    for refused, words in (("/api/v1/nodes", "there is no ResourceFlavor gone"), (path("resourceflavors"), "may not")):
        played = foreign(*xpk(), jobset("llama"), workload("llama", flavor="gone"))
        played.refused |= {"/api/v1/nodes": 403, refused: 403}
        assert words in answer(played, "report", "llama")["price_basis"]
    played = foreign(*xpk(), jobset("llama"), workload("llama"))
    played.refused |= dict.fromkeys((path("workloads"), path("workloads", namespace="default")), 403)
    assert "cannot be read" in answer(played, "report", "llama")["price_basis"]


def test_a_report_without_records_has_no_page(run: Run) -> None:
    for option in (("--page", "x.html"), ("--watch",)):
        assert "keeps no records" in run(foreign(*busy()), "report", "llama", *option, exit_status=1).stderr


@pytest.mark.parametrize("command", ["status", "explain", "logs", "report"])
def test_a_job_that_does_not_exist_is_one_sentence(command: str, run: Run) -> None:
    for name in ("nope", "other/llama", "a?b", "../x", "ä b", ""):
        found = run(foreign(*busy()), command, name, exit_status=1)
        assert len(found.stderr.splitlines()) == 1
        assert repr(name) in found.stderr


@pytest.mark.parametrize("command", ["list", "status", "explain", "logs", "report", "doctor"])
def test_a_name_that_is_no_namespace_is_one_sentence(command: str, run: Run) -> None:
    found = run(foreign(*busy()), command, "--namespace", "a/../b", exit_status=1)
    assert "'a/../b'" in found.stderr


RIGHTS = {
    path("workloads"): "list workloads.kueue.x-k8s.io in all namespaces",
    path("localqueues"): "list localqueues.kueue.x-k8s.io in all namespaces",
    path("clusterqueues"): "list clusterqueues.kueue.x-k8s.io",
    JOBSETS: "list jobsets.jobset.x-k8s.io in namespace default",
    JOBS: "list jobs.batch in namespace default",
    PODS: "list pods in namespace default",
    EVENTS: "list events in namespace default",
    "/api/v1/nodes": "list nodes",
}


@pytest.mark.parametrize("refused", RIGHTS)
def test_a_missing_right_is_named(refused: str, answer: Answer, run: Run) -> None:
    played = foreign(*busy())
    for plural in ("workloads", "localqueues"):
        played.collections[path(plural, namespace="default")] = [
            each for each in played.collections[path(plural)] if each["metadata"]["namespace"] == "default"
        ]
    played.refused[refused] = 403
    found = answer(played, "list")
    assert f"you may not {RIGHTS[refused]}" in " ".join(found["notes"])
    waits = [each["position"] for each in found["jobs"] if each["name"] == "eval"]
    assert waits == [None if "all namespaces" in RIGHTS[refused] else 2]


@pytest.mark.parametrize(
    ("status", "advice"), [(401, "log in again"), (403, "a user who may read the cluster"), (503, "a kubeconfig")]
)
def test_a_cluster_that_refuses_all_is_reported_without_teams(status: int, advice: str, run: Run) -> None:
    played = foreign(*busy())
    played.refused["/apis/jobset.x-k8s.io"] = status
    found = " ".join(run(played, "list", exit_status=1).stderr.split())
    assert advice in found
    assert "members" not in found


def test_a_response_without_content_has_its_status() -> None:
    assert str(refusal(503, b"")) == "HTTP 503"


@pytest.mark.parametrize("command", ["list", "status", "explain", "report", "logs"])
def test_a_user_without_rights_gets_one_error(command: str, run: Run) -> None:
    played = foreign(*busy())
    played.refused |= dict.fromkeys(
        [*RIGHTS, *(path(each, namespace="default") for each in ("workloads", "localqueues"))], 403
    )
    played.refused[f"{JOBSETS}/llama"] = 403
    words = [] if command in ("list", "status") else ["llama"]
    assert "you may not " in run(played, command, *words, exit_status=1).stderr


def test_pods_that_cannot_be_read_are_not_counted(run: Run, answer: Answer) -> None:
    def played() -> Played:
        found = foreign(*busy())
        found.refused[PODS] = 403
        return found

    assert "to be created" not in run(played(), "status", "llama").stdout
    assert answer(played(), "report", "llama")["pods"] is None
    assert "none now" not in run(played(), "report", "llama").stdout


def test_a_cluster_without_kueue_has_its_jobsets(answer: Answer) -> None:
    played = foreign(jobset("llama"), *pods("llama"))
    played.collections["/apis"] = played.collections["/apis"][1:]
    found = answer(played, "list")
    assert [(each["name"], each["state"]) for each in found["jobs"]] == [("llama", "running")]
    assert "without the API group kueue.x-k8s.io" in " ".join(found["notes"])


def test_a_cluster_without_jobset_has_its_batch_jobs(answer: Answer) -> None:
    played = foreign(*xpk(), job("batch"), workload("batch", kind="Job"), pod("batch", 0, "Job"))
    played.collections["/apis"] = played.collections["/apis"][:1]
    played.refused[JOBSETS] = 404
    found = answer(played, "list")
    assert [each["name"] for each in found["jobs"]] == ["batch"]
    assert "no JobSet" in " ".join(found["notes"])


def test_an_older_kueue_is_read_in_its_own_version(answer: Answer) -> None:
    found = answer(foreign(*busy(), version="v1beta1"), "list")["jobs"]
    assert [(each["name"], each["position"]) for each in found] == [("llama", None), ("eval", 2)]


@pytest.mark.parametrize("command", ["list", "status", "explain", "report", "logs"])
@pytest.mark.parametrize("missing", ["spec", "status", "both"])
def test_half_deleted_objects_are_no_error(command: str, missing: str, run: Run) -> None:
    objects = [*busy(), job("batch"), workload("batch", kind="Job"), node(), pod("batch", 0, "Job")]
    event = {"kind": "Event", "metadata": {"name": "e", "uid": "e"}, "involvedObject": {"kind": "JobSet"}}
    for each in objects:
        for key in ("spec", "status") if missing == "both" else (missing,):
            each.pop(key, None) if each["kind"] != "Pod" or key == "status" else None
        each["metadata"]["deletionTimestamp"] = "2026-01-05T12:00:00Z"
    played = foreign(*objects, event)
    played.logs |= {each["metadata"]["name"]: [] for each in played.collections[PODS]}
    words = [] if command in ("list", "status") else ["llama"]
    run(played, command, *words)
