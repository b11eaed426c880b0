"""What the simulation leaves out, and what keeps a job out besides quotas of chips."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.api_server import Played
from tests.cli.rehearse.clusters import (
    SYSTEM,
    TPU,
    Object,
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
from tests.cli.shown import check

type Case = tuple[str, Played, Object]

_TAINT = {"key": TPU, "value": "present", "effect": "NoSchedule"}
_LIKE: Any = {"namespaceSelector": {"matchLabels": {"team": "research"}}}
_PREBUILT = {"annotations": {"kueue.x-k8s.io/prebuilt-workload-name": "x"}}
_PREFERENCE: Any = {"flavorFungibility": {"preference": "PreemptionOverBorrowing"}}
_THRESHOLD: Any = {
    "preemption": {"withinClusterQueue": "LowerPriority", "borrowWithinCohort": {"maxPriorityThreshold": 1}}
}


def _without(right: str, played: Played) -> Played:
    played.collections[path("localqueues", namespace="default")] = [local_queue("multislice-queue", "cluster-queue")]
    played.refused[right] = 403
    return played


def _of_flavors_and_resources() -> Iterator[Case]:
    flavor, *others = xpk()
    tainted = {**flavor, "spec": {**flavor["spec"], "nodeTaints": [_TAINT]}}
    yield "a flavor with a taint", cluster(tainted, *others), jobset()
    larger = {"nodeSelector": {"cloud.google.com/gke-tpu-topology": "8x8"}}
    yield "a flavor of another topology", cluster(*xpk()), jobset(pod=larger)
    cpus = jobset(limits={"cpu": 100})
    yield "a resource without quota", cluster(*xpk()), cpus
    excluded = {"resources": {"excludeResourcePrefixes": ["cpu"]}}
    yield "which the configuration leaves out", cluster(*xpk(), config=excluded), cpus
    yield "or which cannot be read", _without(f"{SYSTEM}/kueue-manager-config", cluster(*xpk())), cpus
    parts = jobset()
    (part,) = parts["spec"]["replicatedJobs"]
    parts["spec"]["replicatedJobs"] = [{**part, "name": f"part-{index}"} for index in range(19)]
    yield "more parts than Kueue takes", cluster(*xpk(1000)), parts


def _of_queues() -> Iterator[Case]:
    """Queues that admit nothing, or nothing of the namespace."""
    flavor, queue, local, *classes = xpk()
    condition = {"type": "Active", "status": "False", "reason": "FlavorNotFound", "message": "no x"}
    inactive = {**queue, "status": {"conditions": [condition]}}
    yield "an inactive queue", cluster(flavor, inactive, local, *classes), jobset()
    stopped = local_queue("multislice-queue", "cluster-queue", stopPolicy="HoldAndDrain")
    yield "a stopped local queue", cluster(flavor, queue, stopped, *classes), jobset()
    yield "a queue for no namespace", cluster(*xpk(namespaceSelector=None)), jobset()
    yield "a queue without resources", cluster(*xpk(resourceGroups=[])), jobset()


def _of_what_is_not_simulated() -> Iterator[Case]:
    yield "a prebuilt workload", cluster(*xpk()), jobset(metadata=_PREBUILT)
    yield "concurrent admission", cluster(*xpk(concurrentAdmissionPolicy={})), jobset()
    yield "resource claims", cluster(*xpk()), jobset(pod={"resourceClaims": [{"name": "x"}]})
    yield "a runtime class", cluster(*xpk()), jobset(pod={"runtimeClassName": "gvisor"})
    yield "MultiKueue", cluster(*xpk()), jobset(managedBy="kueue.x-k8s.io/multikueue")
    configurations: list[Object] = [
        {"waitForPodsReady": {"blockAdmission": True}},
        {"integrations": {"frameworks": ["batch/job"]}},
        {"managedJobsNamespaceSelector": {"matchLabels": {"team": "other"}}},
        {"resources": {"transformations": [{"input": TPU, "outputs": {}}]}},
        {"resources": {"transformations": [{"input": "vendor/devices", "outputs": {TPU: 1}}]}},
        {"featureGates": {"FlavorFungibility": False}},
    ]
    for config in configurations:
        yield f"the configuration {config}", cluster(*xpk(), config=config), jobset()
    odd = workload("odd", 16, None)
    yield "a workload that waits for nothing", cluster(*xpk(), odd), jobset()
    yield "the same and too few chips", cluster(*xpk(16), odd), jobset()


def _of_preemption() -> Iterator[Case]:
    """Rules that do not matter if the job fits."""
    strategies = {"fairSharing": {"preemptionStrategies": ["LessThanInitialShare"]}}
    for name, spec, config in (
        ("a preference of flavors", _PREFERENCE, None),
        ("a threshold of priorities", _THRESHOLD, None),
        ("other strategies of fair sharing", {}, strategies),
    ):
        yield name, cluster(*xpk(**spec), config=config), jobset()
        yield f"{name} and no chips", cluster(*xpk(**spec), workload("holds", 32), config=config), jobset()
    greedy = workload("greedy", 16, cluster_queue="third"), workload("more", 16, cluster_queue="third")
    for name, running in (("an unread configuration", ()), ("an unread configuration and chips of others", greedy)):
        reclaim = {"reclaimWithinCohort": "Any", "withinClusterQueue": "Never"}
        other = cluster_queue("other", {TPU: {"1xv6e-16": 32}}, cohortName="all")
        third = cluster_queue("third", {TPU: {"1xv6e-16": 0}}, cohortName="all")
        queues = [*xpk(0, cohortName="all", preemption=reclaim), other, local_queue("other", "other", "theirs"), third]
        played = cluster(*queues, *running)
        played.collections[SYSTEM] = []
        yield name, played, jobset()


def _of_rights() -> Iterator[Case]:
    """A missing right matters only if the object does."""
    namespace = "/api/v1/namespaces/default"
    yield "no right to cohorts", _without(path("cohorts"), cluster(*xpk())), jobset()
    yield "no right to cohorts of the queue", _without(path("cohorts"), cluster(*xpk(cohortName="all"))), jobset()
    yield "no right to the namespace", _without(namespace, cluster(*xpk())), jobset()
    yield "no right to the selected namespace", _without(namespace, cluster(*xpk(**_LIKE))), jobset()
    for right in (path("localqueues"), "/api/v1/nodes", f"{namespace}/limitranges"):
        yield f"no right to {right.rpartition('/')[2]}", _without(right, cluster(*xpk())), jobset()


def _of_versions() -> Iterator[Case]:
    spec = {"controllerName": "kueue.x-k8s.io/provisioning-request"}
    hosts = {"kind": "AdmissionCheck", **named("dws"), "spec": spec}
    checked = cluster(*xpk(admissionChecks=["dws"]), hosts, version="v1beta1")
    yield "a check that creates hosts", checked, jobset()
    for version in ("v0.19.7", "v0.16.1"):
        played = cluster(*xpk())
        played.collections[SYSTEM][0]["metadata"]["labels"] = {"app.kubernetes.io/version": version}
        yield f"Kueue {version}", played, jobset()


_OTHERS = (_of_preemption, _of_rights, _of_versions)


@pytest.mark.costs(cpu_seconds=8)
def test_what_a_rehearsal_says_is_what_the_golden_file_says(rehearse: Rehearse) -> None:
    lines: list[str] = []
    for cases in (_of_flavors_and_resources, _of_queues, _of_what_is_not_simulated, *_OTHERS):
        for name, played, job in cases():
            found = rehearse(played, job)
            simulated = found["simulated"]
            checked = ["checked"] * bool(simulated and simulated["checked_flavors"])
            lines += ["", f"# {name}", " ".join((found["outcome"], *checked))]
            if simulated and simulated["outcome"] != found["outcome"]:
                lines.append(f"  simulated: {simulated['outcome']}")
            lines += [f"  {kind}: {each}" for kind in ("reasons", "notes") for each in found[kind]]
    check("rehearsed", "\n".join(lines[1:]) + "\n")
