"""What the simulation leaves out, and what keeps a job out besides quotas of chips."""

from typing import Any

import pytest

from tests.cli.api_server import Played
from tests.cli.rehearse.clusters import (
    SYSTEM,
    TPU,
    Rehearse,
    cluster,
    cluster_queue,
    jobset,
    local_queue,
    named,
    path,
    workload,
    xpk,
)


def test_a_job_that_no_flavor_suits_is_told_why(rehearse: Rehearse) -> None:
    taint = {"key": TPU, "value": "present", "effect": "NoSchedule"}
    flavor, *others = xpk()
    tainted = {**flavor, "spec": {**flavor["spec"], "nodeTaints": [taint]}}
    found = rehearse(cluster(tainted, *others), jobset())
    assert found["outcome"] == "never"
    assert "taint google.com/tpu=present:NoSchedule" in found["reasons"][0]
    other = {"nodeSelector": {"cloud.google.com/gke-tpu-topology": "8x8"}}
    assert "gke-tpu-topology=4x4, and the pods select 8x8" in rehearse(cluster(*xpk()), jobset(pod=other))["reasons"][0]


def test_a_resource_without_quota_keeps_a_job_out_unless_the_configuration_leaves_it_out(rehearse: Rehearse) -> None:
    job, excluded = jobset(limits={"cpu": 100}), {"resources": {"excludeResourcePrefixes": ["cpu"]}}
    assert rehearse(cluster(*xpk()), job)["outcome"] == "never"
    assert rehearse(cluster(*xpk(), config=excluded), job)["outcome"] == "admitted"
    unread = cluster(*xpk())
    unread.refused[f"{SYSTEM}/kueue-manager-config"] = 403
    assert rehearse(unread, job)["outcome"] == "unknown"


def test_kueue_takes_no_job_of_more_than_eighteen_parts(rehearse: Rehearse) -> None:
    job = jobset()
    (part,) = job["spec"]["replicatedJobs"]
    job["spec"]["replicatedJobs"] = [{**part, "name": f"part-{index}"} for index in range(19)]
    found = rehearse(cluster(*xpk(1000)), job)
    assert (found["outcome"], "18" in found["reasons"][0]) == ("never", True)


@pytest.mark.parametrize(
    ("objects", "job"),
    [
        (xpk(), jobset(metadata={"annotations": {"kueue.x-k8s.io/prebuilt-workload-name": "x"}})),
        (xpk(concurrentAdmissionPolicy={}), jobset()),
        (xpk(), jobset(pod={"resourceClaims": [{"name": "x"}]})),
        (xpk(), jobset(pod={"runtimeClassName": "gvisor"})),
        (xpk(), jobset(managedBy="kueue.x-k8s.io/multikueue")),
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
        {"resources": {"transformations": [{"input": "vendor/devices", "outputs": {TPU: 1}}]}},
        {"featureGates": {"FlavorFungibility": False}},
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
        ("/api/v1/namespaces/default/limitranges", {}, "admitted"),
    ],
)
def test_a_missing_right_matters_only_if_the_object_does(
    rehearse: Rehearse, refused: str, spec: Any, outcome: str
) -> None:
    played = cluster(*xpk(**spec))
    played.collections[path("localqueues", namespace="default")] = [local_queue("multislice-queue", "cluster-queue")]
    played.refused[refused] = 403
    assert rehearse(played, jobset())["outcome"] == outcome


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


def test_another_version_of_kueue_is_a_note(rehearse: Rehearse) -> None:
    notes: list[list[str]] = []
    for version in ("v0.19.7", "v0.16.1"):
        played = cluster(*xpk())
        played.collections[SYSTEM][0]["metadata"]["labels"] = {"app.kubernetes.io/version": version}
        notes.append(rehearse(played, jobset())["notes"])
    assert notes == [[], ["this Kueue is v0.16.1, and the simulation follows Kueue 0.19"]]


def test_other_strategies_of_fair_sharing_do_not_matter_if_the_job_fits(rehearse: Rehearse) -> None:
    one_strategy = {"fairSharing": {"preemptionStrategies": ["LessThanInitialShare"]}}
    fits, full = cluster(*xpk(), config=one_strategy), cluster(*xpk(), workload("holds", 32), config=one_strategy)
    assert [rehearse(each, jobset())["outcome"] for each in (fits, full)] == ["admitted", "unknown"]


def test_a_workload_that_waits_for_nothing_is_a_sign_of_something_else(rehearse: Rehearse) -> None:
    odd = workload("odd", 16, None)
    fits, full = rehearse(cluster(*xpk(), odd), jobset()), rehearse(cluster(*xpk(16), odd), jobset())
    assert (fits["outcome"], full["outcome"]) == ("admitted", "unknown")
    assert "default/odd" in fits["notes"][0]
    assert "default/odd" in full["reasons"][0]
