"""`multislice rehearse` on clusters that other tools made, through the command line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from cli.main import app
from tests.cli.api_server import Played, playing
from tests.cli.rehearse.clusters import (
    SYSTEM,
    TPU,
    cluster,
    cluster_queue,
    forbid,
    gcluster,
    jobset,
    kubeconfig,
    local_queue,
    named,
    node,
    path,
    workload,
    written,
    xpk,
)

type Rehearse = Callable[..., dict[str, Any]]


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Result]:
    """Run the command on a played cluster and documents. Only GET requests succeed there."""

    def command(played: Played, *documents: object, options: tuple[str, ...] = (), source: str | None = None) -> Result:
        file = "-" if source is not None else written(tmp_path, *documents)
        with playing(played):
            config = kubeconfig(tmp_path, played)
            words = ["rehearse", file, "--kubeconfig", config, *options]
            return CliRunner().invoke(app, words, input=source, env={"COLUMNS": "160"})

    return command


@pytest.fixture
def rehearse(run: Callable[..., Result]) -> Rehearse:
    """Return the answer to the first document."""

    def command(played: Played, *documents: object, **more: Any) -> dict[str, Any]:
        found = run(played, *documents, options=("-o", "json"), **more)
        assert found.exit_code in (0, 2), found.output
        answer = json.loads(found.stdout)
        (job, *_) = answer["jobs"]
        assert (found.exit_code == 0) == all(each["outcome"] in ("admitted", "preempts") for each in answer["jobs"])
        return job

    return command


def test_objects_in_which_nothing_is_set_are_read(rehearse: Rehearse, run: Callable[..., Result]) -> None:
    empty = [{"kind": kind, **named("all")} for kind in ("Cohort", "ResourceFlavor", "ClusterQueue")]
    aside = {"kind": "LocalQueue", **named("aside", namespace="default")}
    objects = [*xpk(cohortName="all"), *empty, aside]
    assert rehearse(cluster(*objects), jobset())["outcome"] == "admitted"
    assert "expected a ClusterQueue of LocalQueue aside" in run(cluster(*objects), jobset(queue="aside")).output


def test_a_job_that_no_flavor_suits_is_told_why(rehearse: Rehearse) -> None:
    taint = {"key": TPU, "value": "present", "effect": "NoSchedule"}
    flavor, *others = xpk()
    tainted = {**flavor, "spec": {**flavor["spec"], "nodeTaints": [taint]}}
    found = rehearse(cluster(tainted, *others), jobset())
    assert found["outcome"] == "never"
    assert "taint google.com/tpu=present:NoSchedule" in found["reasons"][0]
    other = {"nodeSelector": {"cloud.google.com/gke-tpu-topology": "8x8"}}
    assert "gke-tpu-topology=4x4, and the pods select 8x8" in rehearse(cluster(*xpk()), jobset(pod=other))["reasons"][0]


def test_a_job_is_admitted_by_the_queue_of_xpk_and_priced_by_the_nodes(rehearse: Rehearse) -> None:
    found = rehearse(cluster(*xpk(), node(), version="v1beta1"), jobset(replicas=2))
    assert (found["outcome"], found["chips"], found["simulated"]["flavors"]) == ("admitted", 32, ["1xv6e-16"])
    assert (found["local_queue"], found["cluster_queue"]) == ("multislice-queue", "cluster-queue")
    assert found["usd_per_hour"] == pytest.approx(32 * 2.7)


def test_a_job_that_is_too_large_for_its_queue_is_never_admitted(rehearse: Rehearse) -> None:
    assert rehearse(cluster(*xpk(chips=32)), jobset(replicas=3))["outcome"] == "never"


def test_a_job_waits_behind_those_that_are_older_or_more_urgent(rehearse: Rehearse) -> None:
    holding, waits = workload("holds", 32), workload("waits", 16, None)
    found = rehearse(cluster(*xpk(), holding, waits), jobset())
    assert (found["outcome"], found["position"]) == ("waits", 2)
    assert found["simulated"]["ahead"] == ["default/waits"]
    assert [each["workload"] for each in found["simulated"]["holders"]] == ["default/holds"]


@pytest.mark.parametrize(
    ("urgent", "kind"),
    [
        ({"pod": {"priorityClassName": "high"}}, "PriorityClass"),
        ({"labels": {"kueue.x-k8s.io/priority-class": "high"}}, "WorkloadPriorityClass"),
    ],
)
def test_an_urgent_job_preempts_less_urgent_ones_which_wait(rehearse: Rehearse, urgent: Any, kind: str) -> None:
    classes = [] if kind == "PriorityClass" else [{"kind": kind, **named("high"), "value": 750}]
    held = workload("first", 16, priority=250), workload("second", 16, priority=750)
    found = rehearse(cluster(*xpk(), *classes, *held), jobset(**urgent))
    assert (found["outcome"], found["priority"]) == ("preempts", 750)
    (preempted,) = found["simulated"]["preempted"]
    assert (preempted["workload"], preempted["reason"]) == ("default/first", "InClusterQueue")
    assert preempted["runs_again"] is False


def test_a_queue_reclaims_its_chips_from_its_cohort(rehearse: Rehearse) -> None:
    reclaim = {"reclaimWithinCohort": "Any", "withinClusterQueue": "Never"}
    objects = [
        *xpk(16, cohort="all", preemption=reclaim),
        cluster_queue("other", {TPU: {"1xv6e-16": 16}}, cohort="all"),
        local_queue("other", "other", "theirs"),
        workload("theirs", 32, namespace="theirs", cluster_queue="other", queue="other"),
    ]
    found = rehearse(cluster(*objects, version="v1beta1"), jobset())
    assert found["outcome"] == "preempts"
    (preempted,) = found["simulated"]["preempted"]
    assert (preempted["workload"], preempted["reason"]) == ("theirs/theirs", "InCohortReclamation")


def test_pathways_with_its_head_is_admitted_by_the_queue_of_gcluster(rehearse: Rehearse) -> None:
    job = jobset(queue="user-queue", limits={"cpu": 100, "memory": "100Gi"})
    head = {"containers": [{"name": "head", "resources": {"limits": {"cpu": "8", "memory": "32Gi"}}}]}
    job["spec"]["replicatedJobs"].append(
        {
            "name": "head",
            "template": {
                "spec": {"template": {"spec": {**head, "nodeSelector": {"cloud.google.com/gke-nodepool": "cpu-np"}}}}
            },
        }
    )
    found = rehearse(cluster(*gcluster()), job)
    assert (found["outcome"], found["simulated"]["flavors"], found["notes"]) == ("admitted", ["flavor-tpu"], [])


def test_too_few_cpus_make_the_answer_unknown(rehearse: Rehearse) -> None:
    found = rehearse(cluster(*gcluster(cpus=399)), jobset(queue="user-queue", limits={"cpu": 100, "memory": "1Gi"}))
    assert (found["outcome"], found["simulated"]["outcome"]) == ("unknown", "admitted")
    (reason,) = found["reasons"]
    assert "cluster-queue" in reason
    assert "cpu" in reason


def test_a_resource_without_quota_keeps_a_job_out_unless_the_configuration_leaves_it_out(rehearse: Rehearse) -> None:
    job, excluded = jobset(limits={"cpu": 100}), {"resources": {"excludeResourcePrefixes": ["cpu"]}}
    assert rehearse(cluster(*xpk()), job)["outcome"] == "never"
    assert rehearse(cluster(*xpk(), config=excluded), job)["outcome"] == "admitted"
    unread = cluster(*xpk())
    unread.refused[f"{SYSTEM}/kueue-manager-config"] = 403
    assert rehearse(unread, job)["outcome"] == "unknown"


@pytest.mark.parametrize(
    ("spec", "outcome"),
    [
        ({"stopPolicy": "Hold"}, "waits"),
        ({"namespaceSelector": {"matchLabels": {"team": "other"}}}, "never"),
        ({"namespaceSelector": {"matchLabels": {"team": "research"}}}, "admitted"),
        ({"namespaceSelector": None}, "never"),
        ({"resourceGroups": []}, "never"),
    ],
)
def test_a_queue_that_admits_nothing_of_the_namespace_is_named(rehearse: Rehearse, spec: Any, outcome: str) -> None:
    found = rehearse(cluster(*xpk(**spec)), jobset())
    assert found["outcome"] == outcome
    assert all("cluster-queue" in reason for reason in found["reasons"])


def test_an_inactive_queue_or_a_stopped_local_queue_keeps_a_job_waiting(rehearse: Rehearse) -> None:
    flavor, queue, local, *classes = xpk()
    inactive = {"conditions": [{"type": "Active", "status": "False", "reason": "FlavorNotFound", "message": "no x"}]}
    found = rehearse(cluster(flavor, {**queue, "status": inactive}, local, *classes), jobset())
    assert (found["outcome"], "no x" in found["reasons"][0]) == ("waits", True)
    stopped = local_queue("multislice-queue", "cluster-queue", stopPolicy="HoldAndDrain")
    assert rehearse(cluster(flavor, queue, stopped, *classes), jobset())["outcome"] == "waits"


ANY = {"spec": {"parentName": "root"}}


@pytest.mark.parametrize(
    ("objects", "job"),
    [
        ([*xpk(cohortName="all"), {"kind": "Cohort", **named("all"), **ANY}], jobset()),
        ([*xpk(cohortName="all"), {"kind": "Cohort", **named("all"), "spec": {"resourceGroups": [1]}}], jobset()),
        ([*xpk(admissionChecksStrategy={"admissionChecks": [{"name": "far"}]})], jobset()),
        ([*xpk(), {"kind": "Workload", **workload("partial", 4, minCount=1)}], jobset()),
        ([*xpk(queueingStrategy="StrictFIFO"), workload("waits", 32, None), workload("holds", 4)], jobset()),
        ([*xpk(admissionScope={}), workload("waits", 32, None), workload("holds", 4)], jobset()),
        (xpk(), jobset(pod_metadata={"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}})),
        (xpk(), jobset(metadata={"annotations": {"kueue.x-k8s.io/elastic-job": "true"}})),
        (xpk(), jobset(metadata={"annotations": {"kueue.x-k8s.io/prebuilt-workload-name": "x"}})),
        (xpk(concurrentAdmissionPolicy={}), jobset()),
        (xpk(), jobset(pod={"resourceClaims": [{"name": "x"}]})),
        (xpk(), jobset(managedBy="kueue.x-k8s.io/multikueue")),
        ([{"kind": "ResourceFlavor", **named("1xv6e-16"), "spec": {"topologyName": "x"}}, *xpk()[1:]], jobset()),
    ],
)
def test_what_is_not_simulated_makes_the_answer_unknown(rehearse: Rehearse, objects: Any, job: Any) -> None:
    found = rehearse(cluster(*objects), job)
    assert (found["outcome"], found["simulated"]["outcome"]) == ("unknown", "admitted")
    assert len(found["reasons"]) == 1


@pytest.mark.parametrize(
    "config",
    [
        {"waitForPodsReady": {"blockAdmission": True}},
        {"integrations": {"frameworks": ["batch/job"]}},
        {"managedJobsNamespaceSelector": {"matchLabels": {"team": "other"}}},
        {"resources": {"transformations": [{"input": TPU, "outputs": {}}]}},
    ],
)
def test_so_does_a_configuration_with_which_quotas_do_not_decide(rehearse: Rehearse, config: Any) -> None:
    found = rehearse(cluster(*xpk(), config=config), jobset())
    assert (found["outcome"], len(found["reasons"])) == ("unknown", 1)


@pytest.mark.parametrize(
    "spec",
    [
        {"flavorFungibility": {"preference": "PreemptionOverBorrowing"}},
        {"preemption": {"withinClusterQueue": "LowerPriority", "borrowWithinCohort": {"maxPriorityThreshold": 1}}},
    ],
)
def test_a_rule_of_preemption_does_not_matter_if_the_job_fits(rehearse: Rehearse, spec: Any) -> None:
    fits = rehearse(cluster(*xpk(**spec)), jobset())
    full = rehearse(cluster(*xpk(**spec), workload("holds", 32)), jobset())
    assert (fits["outcome"], len(fits["notes"]), full["outcome"]) == ("admitted", 1, "unknown")


@pytest.mark.parametrize(
    ("refused", "spec", "outcome"),
    [
        (path("cohorts"), {}, "admitted"),
        (path("cohorts"), {"cohortName": "all"}, "unknown"),
        ("/api/v1/namespaces/default", {}, "admitted"),
        ("/api/v1/namespaces/default", {"namespaceSelector": {"matchLabels": {"team": "research"}}}, "unknown"),
        (path("localqueues"), {}, "admitted"),
        ("/api/v1/nodes", {}, "admitted"),
    ],
)
def test_a_missing_right_matters_only_if_the_object_does(
    rehearse: Rehearse, refused: str, spec: Any, outcome: str
) -> None:
    played = cluster(*xpk(**spec))
    played.collections[path("localqueues", namespace="default")] = [local_queue("multislice-queue", "cluster-queue")]
    played.refused[refused] = 403
    assert rehearse(played, jobset())["outcome"] == outcome


def test_a_job_of_kubernetes_may_start_with_fewer_pods(rehearse: Rehearse) -> None:
    template = jobset()["spec"]["replicatedJobs"][0]["template"]["spec"]
    labels = {"kueue.x-k8s.io/queue-name": "multislice-queue"}
    annotations = {"kueue.x-k8s.io/job-min-parallelism": "1"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "spec": {**template, "parallelism": 16, "completions": 16}}
    rigid = {**job, "metadata": {"name": "probe", "labels": labels}}
    elastic = {**job, "metadata": {"name": "probe", "labels": labels, "annotations": annotations}}
    assert rehearse(cluster(*xpk()), rigid)["outcome"] == "never"
    assert rehearse(cluster(*xpk()), elastic)["outcome"] == "unknown"


def test_a_check_that_creates_hosts_follows_the_admission(rehearse: Rehearse) -> None:
    check = {
        "kind": "AdmissionCheck",
        **named("dws"),
        "spec": {"controllerName": "kueue.x-k8s.io/provisioning-request"},
    }
    found = rehearse(cluster(*xpk(admissionChecks=["dws"]), check, version="v1beta1"), jobset())
    assert found["outcome"] == "admitted"
    assert found["simulated"]["checked_flavors"] == ["1xv6e-16"]


def test_fair_sharing_matters_only_if_it_changes_the_answer(rehearse: Rehearse) -> None:
    reclaim = {"reclaimWithinCohort": "Any", "withinClusterQueue": "Never"}

    def unread(*running: Any) -> Played:
        other = cluster_queue("other", {TPU: {"1xv6e-16": 32}}, cohortName="all")
        queues = [*xpk(0, cohortName="all", preemption=reclaim), other, local_queue("other", "other", "theirs")]
        third = cluster_queue("third", {TPU: {"1xv6e-16": 0}}, cohortName="all")
        played = cluster(*queues, third, *running)
        played.collections[SYSTEM] = []
        return played

    greedy = workload("greedy", 16, cluster_queue="third"), workload("more", 16, cluster_queue="third")
    assert rehearse(unread(), jobset())["outcome"] == "admitted"
    assert rehearse(unread(*greedy), jobset())["outcome"] == "unknown"


def test_hidden_workloads_hold_the_chips_that_the_queue_says(rehearse: Rehearse) -> None:
    def hidden(chips: int) -> Played:
        flavor, queue, *rest = xpk()
        total = [{"name": "1xv6e-16", "resources": [{"name": TPU, "total": str(chips)}]}]
        queue["status"]["flavorsReservation"] = total
        played = cluster(flavor, queue, *rest)
        played.collections[path("workloads", namespace="default")] = [workload("mine", 8)]
        forbid(played, "workloads")
        return played

    found = rehearse(hidden(16), jobset())
    assert found["outcome"] == "admitted"
    assert any("workloads" in note for note in found["notes"])
    assert rehearse(hidden(20), jobset())["outcome"] == "unknown"


def test_an_unreadable_priority_does_not_matter_if_the_job_fits(rehearse: Rehearse) -> None:
    job = jobset(labels={"kueue.x-k8s.io/priority-class": "high"})
    fits, full = cluster(*xpk()), cluster(*xpk(), workload("holds", 32))
    for played in (fits, full):
        forbid(played, "workloadpriorityclasses")
    assert rehearse(fits, job)["outcome"] == "admitted"
    assert rehearse(full, job)["outcome"] == "unknown"


def test_a_cluster_without_kueue_or_readable_queues_says_what_is_missing(run: Callable[..., Result]) -> None:
    none = cluster(*xpk())
    none.collections["/apis"] = []
    found = run(none, jobset())
    assert (found.exit_code, "Kueue" in found.output) == (1, True)
    no_jobsets = cluster(*xpk())
    no_jobsets.collections["/apis"].pop()
    found = run(no_jobsets, jobset())
    assert (found.exit_code, "JobSet" in found.output) == (1, True)
    unknown = run(cluster(*xpk(), version="v1alpha1"), jobset())
    assert (unknown.exit_code, "v1alpha1" in unknown.output) == (1, True)
    closed = cluster(*xpk())
    forbid(closed, "clusterqueues", "resourceflavors")
    found = run(closed, jobset())
    assert found.exit_code == 1
    assert all(f"list {plural}" in found.output for plural in ("clusterqueues", "resourceflavors"))


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([], "the zone"),
        ([node("us-east5-a"), node("us-east5-b")], "several"),
        ([node(**{"cloud.google.com/reservation-name": "ours"})], "reservation"),
        ([node("asia-east1-a")], "no list price"),
    ],
)
def test_an_unknown_price_has_a_reason(rehearse: Rehearse, nodes: Any, why: str) -> None:
    found = rehearse(cluster(*xpk(), *nodes), jobset())
    assert (found["usd_per_hour"], why in found["price_basis"]) == (None, True)


def test_spot_nodes_have_the_price_of_spot(rehearse: Rehearse) -> None:
    found = rehearse(cluster(*xpk(), node(**{"cloud.google.com/gke-spot": "true"})), jobset())
    assert found["usd_per_hour"] == pytest.approx(16 * 1.215)


def test_the_jobs_of_a_file_are_submitted_one_after_the_other(run: Callable[..., Result]) -> None:
    batch = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": "probe-", "labels": {"kueue.x-k8s.io/queue-name": "multislice-queue"}},
        "spec": {"template": {"spec": {"containers": [{"resources": {"limits": {TPU: "4"}}}], "nodeSelector": None}}},
    }
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "head"}}
    documents = jobset("one"), service, jobset("two"), batch
    for source in (None, yaml.safe_dump_all(documents)):
        found = run(cluster(*xpk()), *documents, options=("-o", "json"), source=source)
        answer = json.loads(found.stdout)
        outcomes = [(each["job"], each["outcome"]) for each in answer["jobs"]]
        assert outcomes == [("default/one", "admitted"), ("default/two", "admitted"), ("default/probe-*", "waits")]
        assert (found.exit_code, answer["left_out"]) == (2, ["Service head"])


def test_two_jobs_of_one_name_are_an_error(run: Callable[..., Result]) -> None:
    found = run(cluster(*xpk()), jobset("one"), jobset("one"))
    assert (found.exit_code, found.output.count("job.yaml:")) == (1, 1)


def test_a_workload_that_waits_for_nothing_is_a_sign_of_something_else(rehearse: Rehearse) -> None:
    odd = workload("odd", 16, None)
    fits, full = rehearse(cluster(*xpk(), odd), jobset()), rehearse(cluster(*xpk(16), odd), jobset())
    assert (fits["outcome"], full["outcome"]) == ("admitted", "unknown")
    assert "default/odd" in fits["notes"][0]
    assert "default/odd" in full["reasons"][0]


def test_jobs_of_a_file_may_have_different_queues(run: Callable[..., Result]) -> None:
    chipless = [cluster_queue("cpus", {"cpu": {"1xv6e-16": 8}}), local_queue("cpus", "cpus")]
    second = [cluster_queue("second", {TPU: {"1xv6e-16": 16}}), local_queue("second", "second")]
    jobs = [jobset("none", "cpus"), jobset("first"), jobset("other", "second")]
    found = run(cluster(*xpk(16), *chipless, *second), *jobs, options=("-o", "json"))
    outcomes = [each["outcome"] for each in json.loads(found.stdout)["jobs"]]
    assert (found.exit_code, outcomes) == (2, ["never", "admitted", "admitted"])


def test_standard_input_that_is_not_yaml_has_a_line(run: Callable[..., Result]) -> None:
    found = run(cluster(*xpk()), source="kind: Service\n---\na: [")
    assert (found.exit_code, "standard input:3" in found.output) == (1, True)


def test_a_file_without_a_job_is_an_error(run: Callable[..., Result]) -> None:
    found = run(cluster(*xpk()), {"kind": "Service", "metadata": {"name": "head"}}, None, [1])
    assert (found.exit_code, "Service head" in found.output) == (1, True)


def test_a_job_without_a_label_is_for_the_queue_named_default(rehearse: Rehearse) -> None:
    played = cluster(*xpk(), local_queue("default", "cluster-queue"))
    assert rehearse(played, jobset(queue=None))["local_queue"] == "default"


def test_all_errors_of_a_file_are_reported_with_their_lines(run: Callable[..., Result]) -> None:
    wrong = jobset("two", limits={"cpu": "many"}, pod={"nodeSelector": {"a": 1}})
    wrong["spec"]["replicatedJobs"][0]["replicas"] = "2"
    found = run(cluster(*xpk()), jobset("one", metadata={"namespace": "elsewhere"}), wrong, options=("-n", "default"))
    assert found.exit_code == 1
    lines = [line for line in found.output.splitlines() if "job.yaml:" in line]
    assert len(lines) == 4
    ends = ("metadata.namespace", "replicas", "cpu", "nodeSelector.a")
    assert all(any(end in line for line in lines) for end in ends)


@pytest.mark.parametrize(
    ("job", "wrong"),
    [
        (jobset(queue="typo"), "multislice-queue"),
        (jobset(queue=None), "kueue.x-k8s.io/queue-name"),
        (jobset(labels={"kueue.x-k8s.io/priority-class": "typo"}), "typo"),
        (jobset("holds"), "expected a new name"),
        (jobset("", metadata={}), "metadata.name"),
        (jobset(pod={"containers": [{}]}), TPU),
    ],
)
def test_an_error_that_only_the_cluster_shows_has_a_line(run: Callable[..., Result], job: Any, wrong: str) -> None:
    found = run(cluster(*xpk(), workload("holds", 4)), job)
    assert (found.exit_code, "job.yaml:" in found.output, wrong in found.output) == (1, True, True)


def test_the_text_begins_with_the_verdict(run: Callable[..., Result]) -> None:
    found = run(cluster(*xpk(), node(), workload("first", 32, priority=100)), jobset(pod={"priorityClassName": "high"}))
    assert found.exit_code == 0
    first, *others = found.stdout.splitlines()
    assert first.startswith("default/llama  would be admitted on flavor 1xv6e-16")
    assert any("default/first" in line for line in others)
    assert len(others) <= 5
