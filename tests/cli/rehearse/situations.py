"""Clusters that others made, each with the jobs that run or wait there and the next job.

`tests.sandboxes.foreign` gives them to a real Kueue. Each is about what its name says.
"""

from collections.abc import Iterator
from typing import Any

from tests.cli.rehearse.cases import (
    ACCELERATOR,
    NEXT,
    ONE,
    SPOT,
    TAINT,
    URGENT,
    V5P,
    WITHIN,
    Case,
    affinity,
    cohort,
    flavor,
    job,
    limited,
    one,
    other,
    pod,
    queue,
    third,
    two,
)
from tests.cli.rehearse.clusters import TPU, V6E, Object, cluster_queue, gcluster, local_queue, named, xpk
from tests.cli.rehearse.unusual import of_checks, of_jobs, of_orders, of_sizes, of_stops, of_topologies


def of_names() -> Iterator[Case]:
    """Objects as other tools name them."""
    yield Case("xpk", xpk(), (), job("next", 16, queue="multislice-queue"))
    old = [{**each, "apiVersion": "kueue.x-k8s.io/v1beta1"} for each in xpk(16, cohort="all")[:3]]
    yield Case(
        "xpk-in-the-old-version",
        old,
        (job("runs", 8, queue="multislice-queue"),),
        job("next", 8, queue="multislice-queue"),
    )
    heads = pod(0, select={"cloud.google.com/gke-nodepool": "cpu-np"}, limits={"cpu": 8, "memory": "32Gi"})
    yield Case("gcluster-pathways", gcluster(), (), job("next", pod(16, limits={"cpu": 4}), heads))
    yield Case("default-queue", [*one(), local_queue("default", "cluster-queue")], (), _unlabelled(NEXT))


def _unlabelled(made: Object) -> Object:
    return {**made, "metadata": {**made["metadata"], "labels": {}}}


_BOTH = [flavor("tpu"), flavor("spot", {**V6E, **SPOT}), *ONE[1:]]
_SIXTEEN = {"tpu": 16, "spot": 16}


def of_flavors() -> Iterator[Case]:
    """Which flavor a job gets."""
    yield Case("two-flavors-for-one-shape", [*_BOTH, queue(_SIXTEEN)], (job("runs", 16),), NEXT)
    yield Case("flavor-by-selector", [*_BOTH, queue(_SIXTEEN)], (), job("next", pod(8, select={**V6E, **SPOT})))
    yield Case(
        "flavor-by-affinity", [*_BOTH, queue(_SIXTEEN)], (), job("next", pod(8, affinity=affinity("NotIn", "false")))
    )
    yield Case("accelerator-alone", [flavor("tpu", {ACCELERATOR: V6E[ACCELERATOR]}), *ONE[1:], queue()], (), NEXT)
    yield Case("other-accelerator", [flavor("tpu", {ACCELERATOR: "tpu-v5p-slice"}), *ONE[1:], queue()], (), NEXT)
    yield Case("flavor-without-labels", [{"kind": "ResourceFlavor", **named("tpu")}, *ONE[1:], queue()], (), NEXT)
    yield Case("tainted-flavor", [flavor("tpu", nodeTaints=[TAINT]), *ONE[1:], queue()], (), NEXT)
    tolerated = flavor("tpu", nodeTaints=[TAINT], tolerations=[{"key": TPU, "operator": "Exists"}])
    yield Case("flavor-that-tolerates-its-taint", [tolerated, *ONE[1:], queue()], (), NEXT)
    tolerates = pod(8, tolerations=[{"key": TPU, "operator": "Exists", "effect": "NoSchedule"}])
    yield Case(
        "pod-that-tolerates-the-taint",
        [flavor("tpu", nodeTaints=[TAINT]), *ONE[1:], queue()],
        (),
        job("next", tolerates),
    )


def of_fungibility() -> Iterator[Case]:
    """Whether a job preempts or borrows before it gets the next flavor."""
    low = job("low", 16, priority="low")
    yield Case("next-flavor-before-preemption", [*_BOTH, queue(_SIXTEEN, **WITHIN)], (low,), URGENT)
    stops: Any = {"flavorFungibility": {"whenCanPreempt": "MayStopSearch"}}
    yield Case("preemption-before-next-flavor", [*_BOTH, queue(_SIXTEEN, **WITHIN, **stops)], (low,), URGENT)
    old: Any = {"flavorFungibility": {"whenCanPreempt": "Preempt"}, "cohort": "team"}
    first = {**queue(_SIXTEEN, **WITHIN, **old), "apiVersion": "kueue.x-k8s.io/v1beta1"}
    yield Case("preemption-in-the-old-version", [*_BOTH, first], (low,), URGENT)
    lender = [queue({"tpu": 16}, "other", cohortName="team")]
    yield Case(
        "borrows-before-next-flavor", [*_BOTH, *lender, queue({"tpu": 0, "spot": 16}, cohortName="team")], (), NEXT
    )
    next_one: Any = {"flavorFungibility": {"whenCanBorrow": "TryNextFlavor"}}
    tries = queue({"tpu": 0, "spot": 16}, cohortName="team", **next_one)
    yield Case("next-flavor-before-borrowing", [*_BOTH, *lender, tries], (), NEXT)
    preference: Any = {
        "flavorFungibility": {
            "whenCanBorrow": "TryNextFlavor",
            "whenCanPreempt": "TryNextFlavor",
            "preference": "PreemptionOverBorrowing",
        }
    }
    prefers = queue({"tpu": 16, "spot": 0}, cohortName="team", **WITHIN, **preference)
    lends = queue({"spot": 16}, "other", cohortName="team")
    yield Case(
        "preference-of-preemption",
        [*_BOTH, lends, prefers],
        (low,),
        URGENT,
        unknown=("has a preference in flavorFungibility",),
    )


def of_shapes() -> Iterator[Case]:
    """A job of two shapes, and a flavor that does not exist."""
    mixed = [flavor("tpu"), flavor("v5p", V5P), *ONE[1:], queue({"v5p": 16, "tpu": 16})]
    yield Case("two-shapes-in-one-job", mixed, (), job("next", 8, pod(4, select=V5P)))
    yield Case("missing-flavor", [*ONE[1:], queue()], (), NEXT)


def of_queues() -> Iterator[Case]:
    """One queue without a cohort: what is full, urgent, first or too large."""
    yield Case("full", one(), (job("runs", 16),), NEXT)
    yield Case("too-large", one(), (), job("next", 32))
    yield Case("slices-together", one(), (job("runs", 4),), job("next", 4, count=4))
    yield Case(
        "preempts-lower",
        one(**WITHIN),
        (job("first", 8, priority="low"), job("last", 8, priority="low")),
        job("next", 8, priority="high"),
    )
    yield Case("never-preempts", one(preemption={}), (job("low", 16, priority="low"),), URGENT)
    newer: Any = {"preemption": {"withinClusterQueue": "LowerOrNewerEqualPriority"}}
    yield Case("preempts-newer-equal", one(**newer), (job("runs", 8), job("more", 8)), NEXT)
    classes = [{"kind": "PriorityClass", **named("pods-high"), "value": 500}]
    pods = job("next", pod(16, priorityClassName="pods-high"))
    yield Case("priority-of-pods", [*one(**WITHIN), *classes], (job("low", 16, priority="low"),), pods)
    both = job("next", pod(16, priorityClassName="pods-high"), priority="low")
    yield Case(
        "class-of-workload-before-that-of-pods", [*one(**WITHIN), *classes], (job("low", 16, priority="low"),), both
    )
    negative = {"kind": "WorkloadPriorityClass", **named("idle"), "value": -10}
    yield Case("negative-priority", [*one(**WITHIN), negative], (job("idle", 16, priority="idle"),), job("next", 16))
    fifo: Any = {"queueingStrategy": "StrictFIFO"}
    yield Case("strict-fifo-and-nothing-waits", one(**fifo), (job("runs", 4),), NEXT)
    yield Case("hidden-by-selector", one(namespaceSelector={"matchLabels": {"team": "other"}}), (), NEXT)
    yield Case(
        "selected-by-label", [*one(namespaceSelector={"matchLabels": {"team": "research"}}), _labelled()], (), NEXT
    )
    unlike: Any = [{"key": "team", "operator": "NotIn", "values": ["other"]}]
    yield Case("selected-by-rule", one(namespaceSelector={"matchExpressions": unlike}), (), NEXT)
    yield Case("without-selector", one(namespaceSelector=None), (), NEXT)


def _labelled() -> Object:
    return {"kind": "Namespace", **named("default", labels={"team": "research"})}


def of_cohorts() -> Iterator[Case]:
    """Lending and borrowing."""
    yield Case("borrows", two(8, 8), (), job("next", 16))
    yield Case("cohort-with-an-object", [*two(8, 8), cohort("team")], (), job("next", 16))
    yield Case("other-cohort", [*two(8, 8)[:-1], queue(8, "other", cohortName="apart")], (), job("next", 16))
    yield Case("borrowing-limit", two(limited(8, borrowingLimit=4), 16), (), job("next", 16))
    yield Case("lending-limit", two(8, limited(16, lendingLimit=4)), (), job("next", 16))


def of_reclaims() -> Iterator[Case]:
    """Chips that are lent, and that the lender or a borrower takes from others."""
    reclaims: Any = {"preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "Never"}}
    lower: Any = {"preemption": {"reclaimWithinCohort": "LowerPriority"}}
    yield Case("reclaims", two(16, 0, **reclaims), (other("guest", 16, "high"),), NEXT)
    yield Case("reclaims-from-lower", two(16, 0, **lower), (other("guest", 16, "low"),), URGENT)
    borrows = {"preemption": {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}}}
    yield Case(
        "preempts-while-borrowing",
        [*two(0, 8, **borrows), *third(8)],
        (other("guest", 16, "low"),),
        job("next", 8, priority="high"),
    )
    below = {
        "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 50},
        "reclaimWithinCohort": "Any",
    }
    yield Case(
        "threshold-of-preemption",
        [*two(0, 8, preemption=below), *third(8)],
        (other("guest", 16, "low"),),
        job("next", 8, priority="high"),
        unknown=("has a maxPriorityThreshold",),
    )
    yield Case("threshold-and-enough-chips", two(8, 8, preemption=below), (), job("next", 16, priority="high"))


def of_hierarchies() -> Iterator[Case]:
    """Cohorts in cohorts or with chips of their own, and neighbours that lend nothing."""
    root = [cohort("team", parentName="root"), cohort("root"), queue(16, "far", cohortName="root")]
    yield Case("hierarchy", [*two(4, 4), *root], (), job("next", 16), unknown=("Cohort team is part of Cohort root",))
    yield Case(
        "hierarchy-of-absent-cohorts",
        [*two(8, 8), cohort("team", parentName="root")],
        (),
        NEXT,
        unknown=("Cohort team is part of Cohort root",),
    )
    below_us = [cohort("nested", parentName="team"), queue(16, "far", cohortName="nested")]
    yield Case(
        "cohort-with-a-child",
        [*two(4, 4), *below_us],
        (),
        job("next", 16),
        unknown=("Cohort nested is part of Cohort team",),
    )
    shared = cohort("team", resourceGroups=queue(16)["spec"]["resourceGroups"])
    yield Case(
        "chips-of-the-cohort", [*two(0, 0), shared], (), job("next", 16), unknown=("Cohort team has quotas of its own",)
    )
    cpus = cluster_queue("cpus", {"cpu": {"tpu": 8}}, cohortName="team")
    yield Case("neighbour-without-chips", [*two(8, 8), cpus], (), job("next", 16))
    yield Case("neighbour-of-another-flavor", [*two(8, {"v5p": 16}), flavor("v5p", V5P)], (), job("next", 16))


def of_resources() -> Iterator[Case]:
    """CPU and memory next to chips."""
    wants = job("next", pod(16, limits={"cpu": 100, "memory": "100Gi"}))
    yield Case("cpus-suffice", gcluster(cpus=200), (), wants)
    yield Case("too-few-cpus", gcluster(cpus=99), (), wants, unknown=("counts cpu",))
    runs = job("runs", pod(8, limits={"cpu": 150, "memory": "1Gi"}))
    yield Case("cpus-in-use", gcluster(cpus=200), (runs,), wants, unknown=("counts cpu",))
    yield Case("cpus-without-quota", one(), (), wants)
    yield Case("cpus-undeclared", one(), (), wants, config="fair")
    yield Case("storage-left-out", one(), (), job("next", pod(8, limits={"ephemeral-storage": "1Ti"})))
    defaults = {"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}}
    ranged = {"apiVersion": "v1", "kind": "LimitRange", **named("limits"), "spec": {"limits": [defaults]}}
    ranges = ("LimitRange limits",)
    yield Case("default-requests", [*one(), ranged], (), NEXT, unknown=ranges)
    yield Case(
        "limits-after-default-requests", [*gcluster(cpus=200), ranged], (), wants, unknown=("LimitRange limits",)
    )
    asks = job("next", pod(16, limits={"cpu": 100}, requests={"cpu": 100}))
    yield Case("requests-and-limits-before-defaults", [*gcluster(cpus=200), ranged], (), asks, config="fair")
    quota = {
        "name": "any",
        "resources": [{"name": "cpu", "nominalQuota": 200}, {"name": "memory", "nominalQuota": "1Ti"}],
    }
    groups = [*queue()["spec"]["resourceGroups"], {"coveredResources": ["cpu", "memory"], "flavors": [quota]}]
    anywhere = {"kind": "ResourceFlavor", **named("any")}
    yield Case("group-of-cpus", [*one(resourceGroups=groups), anywhere], (), wants)
    small = job("runs", pod(4, limits={"cpu": 150, "memory": "1Gi"}))
    yield Case(
        "group-of-cpus-in-use",
        [*one(resourceGroups=groups), anywhere],
        (small,),
        job("next", pod(8, limits={"cpu": 100, "memory": "1Gi"})),
        unknown=("counts cpu",),
    )
    pods = {"name": "tpu", "resources": [{"name": TPU, "nominalQuota": 16}, {"name": "pods", "nominalQuota": 2}]}
    counted = one(resourceGroups=[{"coveredResources": [TPU, "pods"], "flavors": [pods]}])
    yield Case("pods-suffice", counted, (), job("next", 4, count=2))
    yield Case("too-few-pods", counted, (), job("next", 4, count=3), unknown=("counts pods",))
    sidecar = {"name": "proxy", "image": "none", "restartPolicy": "Always", "resources": {"limits": {TPU: 4}}}
    yield Case("chips-of-init-containers", one(), (job("runs", 6),), job("next", pod(8, initContainers=[sidecar])))
    yield Case(
        "head-without-chips",
        gcluster(),
        (),
        job(
            "next", 16, pod(0, select={"cloud.google.com/gke-nodepool": "cpu-np"}, limits={"cpu": 481, "memory": "1Gi"})
        ),
        unknown=("counts cpu",),
    )


CASES = tuple(
    case
    for cases in (
        *(
            of_names,
            of_flavors,
            of_fungibility,
            of_shapes,
            of_queues,
            of_cohorts,
            of_reclaims,
            of_hierarchies,
            of_resources,
        ),
        *(of_stops, of_checks, of_topologies, of_sizes, of_jobs, of_orders),
    )
    for case in cases()
)
