"""Clusters that others made, each with the jobs that run or wait there and the next job, as Kubernetes objects.

`tests.sandboxes.foreign` gives them to a real Kueue. Each is about what its name says.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.cli.rehearse.clusters import TPU, V6E, Object, cluster_queue, gcluster, local_queue, named, xpk

ACCELERATOR, TOPOLOGY = V6E
V5P = {ACCELERATOR: "tpu-v5p-slice", TOPOLOGY: "2x2x1"}
SPOT = {"cloud.google.com/gke-spot": "true"}
TAINT = {"key": TPU, "value": "present", "effect": "NoSchedule"}
FAIR = {"fairSharing": {}, "resources": {"excludeResourcePrefixes": ["cpu", "memory"]}}
UNDECLARED = {"resources": {"quotaCheckStrategy": "IgnoreUndeclared"}}
CONFIGURATIONS: Mapping[str, Object] = {"usual": {}, "fair": FAIR, "undeclared": UNDECLARED}
"""What Kueue's configuration has besides that of its chart."""
_API = "kueue.x-k8s.io/v1beta2"


@dataclass(frozen=True)
class Case:
    """A cluster and the next job."""

    name: str
    objects: list[Object]
    jobs: tuple[Object, ...]
    """In the order in which they are submitted, before `changes`."""
    next: Object
    changes: tuple[Object, ...] = ()
    """What is changed when the jobs run or wait: kind, name and some fields."""
    unknown: str = ""
    """Part of the reason why the outcome is not known. Empty: it is known."""
    config: str = "usual"


def pod(chips: int, *, select: Mapping[str, str] = V6E, limits: Mapping[str, object] = {}, **spec: Any) -> Object:
    """A pod with one container."""
    wanted = {**({TPU: chips} if chips else {}), **limits}
    container = {"name": "main", "image": "none", "resources": {"limits": wanted}}
    return {"restartPolicy": "Never", "nodeSelector": select, "containers": [container], **spec}


def job(
    name: str, *pods: Object | int, queue: str = "user-queue", priority: str = "", count: int = 1, **metadata: Any
) -> Object:
    """A JobSet with one replicated job for each pod, or number of chips."""
    sets = [pod(each) if isinstance(each, int) else each for each in pods]
    labels = {"kueue.x-k8s.io/queue-name": queue} | ({"kueue.x-k8s.io/priority-class": priority} if priority else {})
    jobs = [
        {"name": f"set{index}", "replicas": count, "template": {"spec": _job_spec(each, metadata.get("pods", {}))}}
        for index, each in enumerate(sets)
    ]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "labels": labels, "annotations": metadata.get("annotations", {})},
        "spec": {"replicatedJobs": jobs},
    }


def _job_spec(pods: Object, annotations: Object) -> Object:
    template = {"metadata": {"annotations": annotations}, "spec": pods}
    return {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": template}


def plain_job(name: str, chips: int, pods: int = 1, priority: str = "", **annotations: str) -> Object:
    """A Job of Kubernetes with `pods` pods of `chips` chips."""
    made = job(name, chips, priority=priority)
    spec = {**_job_spec(pod(chips), {}), "parallelism": pods, "completions": pods}
    metadata = {**made["metadata"], "annotations": {f"kueue.x-k8s.io/{key}": each for key, each in annotations.items()}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def bare(name: str, chips: int, priority: int = 0, **pods: Any) -> Object:
    """A Workload as a controller makes it of a job of another kind, such as TrainJob."""
    counted = {"name": "node", "count": 1, "template": {"spec": pod(chips)}, **pods}
    spec = {"queueName": "user-queue", "priority": priority, "podSets": [counted]}
    return {"apiVersion": _API, "kind": "Workload", **named(name, namespace="default"), "spec": spec}


def flavor(name: str, labels: Mapping[str, str] = V6E, **spec: Any) -> Object:
    return {"kind": "ResourceFlavor", **named(name), "spec": {"nodeLabels": labels, **spec}}


def cohort(name: str, **spec: Any) -> Object:
    return {"kind": "Cohort", **named(name), "spec": spec}


def queue(chips: int | Mapping[str, Any] = 16, name: str = "cluster-queue", **spec: Any) -> Object:
    """A queue with chips of the flavor `tpu`, or quotas by flavor."""
    quotas = {"tpu": chips} if isinstance(chips, int) else chips
    made = cluster_queue(name, {TPU: {flavor: 0 for flavor in quotas}}, **{"namespaceSelector": {}, **spec})
    for each in made["spec"]["resourceGroups"][0]["flavors"]:
        quota = quotas[each["name"]]
        each["resources"][0] |= quota if isinstance(quota, Mapping) else {"nominalQuota": quota}
    return made


USER = local_queue("user-queue", "cluster-queue")
OTHERS = local_queue("other-queue", "other")
"""The LocalQueue of the ClusterQueue `other`."""
CLASSES = [
    {"kind": "WorkloadPriorityClass", **named(name), "value": value} for name, value in (("low", 100), ("high", 1000))
]
ONE = [flavor("tpu"), USER, *CLASSES]
"""Everything but the ClusterQueue."""
WITHIN = {"preemption": {"withinClusterQueue": "LowerPriority"}}


def one(chips: int | Mapping[str, Any] = 16, **spec: Any) -> list[Object]:
    """A cluster with one queue."""
    return [*ONE, queue(chips, **spec)]


def two(own: int | Mapping[str, Any], other: int | Mapping[str, Any], /, **spec: Any) -> list[Object]:
    """A cluster with two queues in a cohort, of which nobody made an object."""
    lends = spec.pop("other", {})
    return [*ONE, OTHERS, queue(own, cohortName="team", **spec), queue(other, "other", cohortName="team", **lends)]


def other(name: str, chips: int, priority: str = "", **more: Any) -> Object:
    """A job in the other queue."""
    return job(name, chips, queue="other-queue", priority=priority, **more)


NEXT = job("next", 8)
URGENT = job("next", 16, priority="high")


def limited(chips: int, **limits: int) -> Object:
    return {"tpu": {"nominalQuota": chips, **limits}}


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


def of_flavors() -> Iterator[Case]:
    """Which flavor a job gets."""
    both = [flavor("tpu"), flavor("spot", {**V6E, **SPOT}), *ONE[1:]]
    sixteen = {"tpu": 16, "spot": 16}
    yield Case("two-flavors-for-one-shape", [*both, queue(sixteen)], (job("runs", 16),), NEXT)
    yield Case("flavor-by-selector", [*both, queue(sixteen)], (), job("next", pod(8, select={**V6E, **SPOT})))
    yield Case(
        "flavor-by-affinity", [*both, queue(sixteen)], (), job("next", pod(8, affinity=_affinity("NotIn", "false")))
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
    low = job("low", 16, priority="low")
    yield Case("next-flavor-before-preemption", [*both, queue(sixteen, **WITHIN)], (low,), URGENT)
    stops = {"flavorFungibility": {"whenCanPreempt": "MayStopSearch"}}
    yield Case("preemption-before-next-flavor", [*both, queue(sixteen, **WITHIN, **stops)], (low,), URGENT)
    old = {"flavorFungibility": {"whenCanPreempt": "Preempt"}, "cohort": "team"}
    first = {**queue(sixteen, **WITHIN, **old), "apiVersion": "kueue.x-k8s.io/v1beta1"}
    yield Case("preemption-in-the-old-version", [*both, first], (low,), URGENT)
    lender = [queue({"tpu": 16}, "other", cohortName="team")]
    yield Case(
        "borrows-before-next-flavor", [*both, *lender, queue({"tpu": 0, "spot": 16}, cohortName="team")], (), NEXT
    )
    next_one = {"flavorFungibility": {"whenCanBorrow": "TryNextFlavor"}}
    tries = queue({"tpu": 0, "spot": 16}, cohortName="team", **next_one)
    yield Case("next-flavor-before-borrowing", [*both, *lender, tries], (), NEXT)
    preference = {
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
        [*both, lends, prefers],
        (low,),
        URGENT,
        unknown="has a preference in flavorFungibility",
    )
    mixed = [flavor("tpu"), flavor("v5p", V5P), *ONE[1:], queue({"v5p": 16, "tpu": 16})]
    yield Case("two-shapes-in-one-job", mixed, (), job("next", 8, pod(4, select=V5P)))
    yield Case("missing-flavor", [*ONE[1:], queue()], (), NEXT)


def _affinity(operator: str, value: str) -> Object:
    rule = {"key": next(iter(SPOT)), "operator": operator, "values": [value]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def of_queues() -> Iterator[Case]:
    """One queue without a cohort: what is full, urgent, first or too large."""
    yield Case("full", one(), (job("runs", 16),), NEXT)
    yield Case("too-large", one(), (), job("next", 32))
    yield Case("slices-together", one(), (job("runs", 4),), job("next", 4, count=4))
    yield Case("small-job-passes-a-large-one", one(), (job("runs", 4), job("waits", 16)), NEXT)
    yield Case("equal-job-waits-behind", one(), (job("runs", 16), job("waits", 8)), NEXT)
    yield Case(
        "preempts-lower",
        one(**WITHIN),
        (job("first", 8, priority="low"), job("last", 8, priority="low")),
        job("next", 8, priority="high"),
    )
    yield Case("preempts-only-lower", one(**WITHIN), (job("runs", 16, priority="high"),), URGENT)
    yield Case("never-preempts", one(preemption={}), (job("low", 16, priority="low"),), URGENT)
    newer = {"preemption": {"withinClusterQueue": "LowerOrNewerEqualPriority"}}
    yield Case("preempts-newer-equal", one(**newer), (job("runs", 8), job("more", 8)), NEXT)
    yield Case(
        "preempts-the-fewest",
        one(**WITHIN),
        (job("small", 4, priority="low"), job("large", 12, priority="low")),
        job("next", 12, priority="high"),
    )
    yield Case(
        "preempted-leave-room-for-others",
        one(**WITHIN),
        (job("large", 16, priority="low"), job("waits", 8)),
        job("next", 8, priority="high"),
    )
    classes = [{"kind": "PriorityClass", **named("pods-high"), "value": 500}]
    pods = job("next", pod(16, priorityClassName="pods-high"))
    yield Case("priority-of-pods", [*one(**WITHIN), *classes], (job("low", 16, priority="low"),), pods)
    both = job("next", pod(16, priorityClassName="pods-high"), priority="low")
    yield Case(
        "class-of-workload-before-that-of-pods", [*one(**WITHIN), *classes], (job("low", 16, priority="low"),), both
    )
    negative = {"kind": "WorkloadPriorityClass", **named("idle"), "value": -10}
    yield Case("negative-priority", [*one(**WITHIN), negative], (job("idle", 16, priority="idle"),), job("next", 16))
    fifo = {"queueingStrategy": "StrictFIFO"}
    yield Case(
        "strict-fifo-with-a-waiting-job", one(**fifo), (job("runs", 4), job("waits", 16)), NEXT, unknown="is StrictFIFO"
    )
    yield Case("strict-fifo-and-nothing-waits", one(**fifo), (job("runs", 4),), NEXT)
    yield Case("hidden-by-selector", one(namespaceSelector={"matchLabels": {"team": "other"}}), (), NEXT)
    yield Case(
        "selected-by-label", [*one(namespaceSelector={"matchLabels": {"team": "research"}}), _labelled()], (), NEXT
    )
    unlike = [{"key": "team", "operator": "NotIn", "values": ["other"]}]
    yield Case("selected-by-rule", one(namespaceSelector={"matchExpressions": unlike}), (), NEXT)
    yield Case("without-selector", one(namespaceSelector=None), (), NEXT)


def _labelled() -> Object:
    return {"kind": "Namespace", **named("default", labels={"team": "research"})}


def of_cohorts() -> Iterator[Case]:
    """Lending, borrowing and reclaiming."""
    reclaims: Any = {"preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "Never"}}
    lower: Any = {"preemption": {"reclaimWithinCohort": "LowerPriority"}}
    yield Case("borrows", two(8, 8), (), job("next", 16))
    yield Case("cohort-with-an-object", [*two(8, 8), cohort("team")], (), job("next", 16))
    yield Case("other-cohort", [*two(8, 8)[:-1], queue(8, "other", cohortName="apart")], (), job("next", 16))
    yield Case("borrowing-limit-suffices", two(limited(8, borrowingLimit=8), 16), (), job("next", 16))
    yield Case("borrowing-limit", two(limited(8, borrowingLimit=4), 16), (), job("next", 16))
    yield Case("no-borrowing", two(limited(8, borrowingLimit=0), 16), (), job("next", 16))
    yield Case("lending-limit-suffices", two(8, limited(16, lendingLimit=8)), (), job("next", 16))
    yield Case("lending-limit", two(8, limited(16, lendingLimit=4)), (), job("next", 16))
    yield Case("lends-nothing", two(0, limited(16, lendingLimit=0)), (), NEXT)
    yield Case("lent-away", two(16, 0), (other("guest", 16),), NEXT)
    yield Case("reclaims", two(16, 0, **reclaims), (other("guest", 16, "high"),), NEXT)
    yield Case(
        "reclaims-the-least", two(16, 4, **reclaims), (other("own", 4), other("guest", 8), other("more", 8)), NEXT
    )
    yield Case("reclaims-from-lower", two(16, 0, **lower), (other("guest", 16, "low"),), URGENT)
    yield Case("reclaims-from-lower-alone", two(16, 0, **lower), (other("guest", 16, "high"),), URGENT)
    borrows = {"preemption": {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}}}
    yield Case(
        "preempts-while-borrowing",
        [*two(0, 8, **borrows), *_third(8)],
        (other("guest", 16, "low"),),
        job("next", 8, priority="high"),
    )
    below = {
        "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 50},
        "reclaimWithinCohort": "Any",
    }
    yield Case(
        "threshold-of-preemption",
        [*two(0, 8, preemption=below), *_third(8)],
        (other("guest", 16, "low"),),
        job("next", 8, priority="high"),
        unknown="has a maxPriorityThreshold",
    )
    yield Case("threshold-and-enough-chips", two(8, 8, preemption=below), (), job("next", 16, priority="high"))
    root = [cohort("team", parentName="root"), cohort("root"), queue(16, "far", cohortName="root")]
    yield Case("hierarchy", [*two(4, 4), *root], (), job("next", 16), unknown="Cohort team is part of Cohort root")
    yield Case(
        "hierarchy-of-absent-cohorts",
        [*two(8, 8), cohort("team", parentName="root")],
        (),
        NEXT,
        unknown="Cohort team is part of Cohort root",
    )
    below_us = [cohort("nested", parentName="team"), queue(16, "far", cohortName="nested")]
    yield Case(
        "cohort-with-a-child",
        [*two(4, 4), *below_us],
        (),
        job("next", 16),
        unknown="Cohort nested is part of Cohort team",
    )
    shared = cohort("team", resourceGroups=queue(16)["spec"]["resourceGroups"])
    yield Case(
        "chips-of-the-cohort", [*two(0, 0), shared], (), job("next", 16), unknown="Cohort team has quotas of its own"
    )
    cpus = cluster_queue("cpus", {"cpu": {"tpu": 8}}, cohortName="team")
    yield Case("neighbour-without-chips", [*two(8, 8), cpus], (), job("next", 16))
    yield Case("neighbour-of-another-flavor", [*two(8, {"v5p": 16}), flavor("v5p", V5P)], (), job("next", 16))
    yield Case("waiting-in-both", two(8, 8), (job("runs", 8), other("theirs", 8), other("waits", 8)), NEXT)


def _third(chips: int) -> list[Object]:
    return [queue(chips, "third", cohortName="team"), local_queue("third-queue", "third")]


def of_resources() -> Iterator[Case]:
    """CPU and memory next to chips."""
    wants = job("next", pod(16, limits={"cpu": 100, "memory": "100Gi"}))
    yield Case("cpus-suffice", gcluster(cpus=200), (), wants)
    yield Case("too-few-cpus", gcluster(cpus=99), (), wants, unknown="counts cpu")
    runs = job("runs", pod(8, limits={"cpu": 150, "memory": "1Gi"}))
    yield Case("cpus-in-use", gcluster(cpus=200), (runs,), wants, unknown="counts cpu")
    yield Case("cpus-without-quota", one(), (), wants)
    yield Case("cpus-left-out", one(), (), wants, config="fair")
    yield Case("cpus-undeclared", one(), (), wants, config="undeclared")
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
        unknown="counts cpu",
    )
    pods = {"name": "tpu", "resources": [{"name": TPU, "nominalQuota": 16}, {"name": "pods", "nominalQuota": 2}]}
    counted = one(resourceGroups=[{"coveredResources": [TPU, "pods"], "flavors": [pods]}])
    yield Case("pods-suffice", counted, (), job("next", 4, count=2))
    yield Case("too-few-pods", counted, (), job("next", 4, count=3), unknown="counts pods")
    sidecar = {"name": "proxy", "image": "none", "restartPolicy": "Always", "resources": {"limits": {TPU: 4}}}
    yield Case("chips-of-init-containers", one(), (job("runs", 6),), job("next", pod(8, initContainers=[sidecar])))
    yield Case(
        "head-without-chips",
        gcluster(),
        (),
        job(
            "next", 16, pod(0, select={"cloud.google.com/gke-nodepool": "cpu-np"}, limits={"cpu": 481, "memory": "1Gi"})
        ),
        unknown="counts cpu",
    )


def _stop(kind: str, name: str, policy: str) -> Object:
    return {"kind": kind, **named(name), "spec": {"stopPolicy": policy}}


def of_stops() -> Iterator[Case]:
    """Queues that somebody has stopped while jobs run."""
    runs, guest = job("runs", 8), other("guest", 8)
    for policy in ("Hold", "HoldAndDrain"):
        name = policy.lower()
        yield Case(f"queue-{name}", one(), (runs,), NEXT, (_stop("ClusterQueue", "cluster-queue", policy),))
        yield Case(f"local-queue-{name}", one(), (runs,), NEXT, (_stop("LocalQueue", "user-queue", policy),))
        theirs = _stop("ClusterQueue", "other", policy)
        yield Case(f"lender-{name}", two(8, 16), (guest,), job("next", 16), (theirs,))
        reclaims = {"preemption": {"reclaimWithinCohort": "Any"}}
        yield Case(f"borrower-{name}", two(16, 0, **reclaims), (other("guest", 16),), job("next", 16), (theirs,))
        waits, aside = job("waits", 16, queue="aside", priority="high"), local_queue("aside", "cluster-queue")
        yield Case(
            f"waiting-in-local-queue-{name}",
            [*one(), aside],
            (runs, waits),
            NEXT,
            (_stop("LocalQueue", "aside", policy),),
        )
        small = job("aside", 8, queue="aside", priority="low")
        yield Case(
            f"running-in-local-queue-{name}",
            [*one(**WITHIN), aside],
            (runs, small),
            NEXT,
            (_stop("LocalQueue", "aside", policy),),
        )
    absent = queue({"absent": 16}, "other", cohortName="team")
    yield Case("lender-without-its-flavor", [*two(8, 8)[:-1], absent], (), job("next", 16))
    inactive = {**queue({"tpu": 8, "absent": 8}, "other", cohortName="team")}
    yield Case("inactive-lender", [*two(8, 8)[:-1], inactive], (), job("next", 16))
    yield Case(
        "local-queue-of-no-cluster-queue",
        [*one(), local_queue("lost", "absent")],
        (job("lost", 8, queue="lost"),),
        NEXT,
    )


def _check(controller: str, *, active: bool = True) -> Object:
    status = {
        "conditions": [
            {
                "type": "Active",
                "status": "True",
                "reason": "Active",
                "message": "",
                "lastTransitionTime": "2026-01-05T12:00:00Z",
            }
        ]
    }
    return {
        "kind": "AdmissionCheck",
        **named("check"),
        "spec": {"controllerName": controller},
        **({"status": status} if active else {}),
    }


def of_checks() -> Iterator[Case]:
    """Admission checks, topologies, and jobs that change their size."""
    checked = {"admissionChecksStrategy": {"admissionChecks": [{"name": "check"}]}}
    yield Case(
        "check-of-others",
        [*one(**checked), _check("example.com/licenses")],
        (),
        NEXT,
        unknown="AdmissionCheck check (controller example.com/licenses)",
    )
    yield Case("check-of-others-and-a-full-queue", [*one(4, **checked), _check("example.com/licenses")], (), NEXT)
    yield Case("check-that-is-not-active", [*one(**checked), _check("example.com/licenses", active=False)], (), NEXT)
    yield Case("check-that-does-not-exist", one(**checked), (), NEXT)
    elsewhere = {"admissionChecksStrategy": {"admissionChecks": [{"name": "check", "onFlavors": ["spot"]}]}}
    both = [
        *ONE,
        flavor("spot", {**V6E, **SPOT}),
        queue({"tpu": 8, "spot": 16}, **elsewhere),
        _check("example.com/licenses"),
    ]
    yield Case("check-on-another-flavor", both, (), job("next", pod(8, affinity=_affinity("NotIn", "true"))))
    topology = {
        "kind": "Topology",
        **named("racks"),
        "spec": {"levels": [{"nodeLabel": "cloud.google.com/gke-nodepool"}]},
    }
    aware = [flavor("tpu", topologyName="racks"), topology, *ONE[1:], queue()]
    yield Case("topology-aware-flavor", aware, (), NEXT, unknown="ResourceFlavor tpu is topology-aware")
    asks = {"kueue.x-k8s.io/podset-required-topology": "cloud.google.com/gke-nodepool"}
    yield Case("topology-aware-job", one(), (), job("next", 8, pods=asks), unknown="asks for topology-aware scheduling")
    yield Case("topology-aware-job-and-flavor", aware, (), job("next", 8, pods=asks), unknown="topology-aware")
    yield Case(
        "partial-job",
        one(),
        (job("runs", 8),),
        plain_job("next", 4, 4, **{"job-min-parallelism": "1"}),
        unknown="accepts fewer pods (kueue.x-k8s.io/job-min-parallelism)",
    )
    partial = plain_job("partial", 4, 4, **{"job-min-parallelism": "1"})
    yield Case(
        "partial-job-runs", one(), (job("runs", 8), partial), job("next", 4), unknown="accepts fewer pods (minCount)"
    )
    apart = [*one(), queue(16, "other"), OTHERS]
    there = {**partial, "metadata": {**partial["metadata"], "labels": other("", 0)["metadata"]["labels"]}}
    yield Case("partial-job-of-another-queue", apart, (there,), NEXT)
    yield Case("elastic-job", one(), (), plain_job("next", 4, 2, **{"elastic-job": "true"}), unknown="is elastic")


def of_jobs() -> Iterator[Case]:
    """Jobs of other kinds than JobSet."""
    yield Case("plain-job", one(), (), plain_job("next", 4, 4))
    yield Case("plain-job-too-large", one(), (), plain_job("next", 4, 5))
    yield Case("plain-job-preempted", one(**WITHIN), (plain_job("low", 4, 4, priority="low"),), URGENT)
    two_pods = plain_job("next", 8, 4)
    yield Case(
        "plain-job-with-fewer-completions", one(), (), {**two_pods, "spec": {**two_pods["spec"], "completions": 2}}
    )
    yield Case("workload-of-another-kind", one(), (bare("trainjob-runs", 12),), NEXT)
    yield Case("workload-of-another-kind-preempted", one(**WITHIN), (bare("trainjob-low", 12, -5),), job("next", 16))
    yield Case(
        "inactive-workload",
        one(),
        (bare("trainjob-runs", 12),),
        NEXT,
        ({"kind": "Workload", **named("trainjob-runs"), "spec": {"active": False}},),
    )
    initializer = pod(0, select={}, limits={"cpu": 2, "memory": "4Gi"})
    yield Case("job-with-an-initializer", one(), (), job("next", initializer, 8), config="fair")
    group = {**job("runs", 8), "apiVersion": "v1", "kind": "Pod", "spec": pod(8)}
    yield Case("pod", one(), (group, job("more", 8)), NEXT)


def of_shares() -> Iterator[Case]:
    """Fair sharing."""
    reclaims: Any = {"preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}}

    def fair(name: str, weights: tuple[str, str], *jobs: Object, chips: int = 8) -> Case:
        own, theirs = ({"fairSharing": {"weight": weight}} for weight in weights)
        objects = [*two(0, 0, **reclaims, **own, other={**theirs, **reclaims}), *_third(16)]
        return Case(f"fair-{name}", objects, jobs, job("next", chips), config="fair")

    yield fair("takes-half", ("1", "1"), other("guest", 8), other("more", 8))
    yield fair("leaves-an-equal-share", ("1", "1"), job("runs", 8), other("guest", 8))
    yield fair("weighs", ("3", "1"), job("runs", 8), other("guest", 4), other("more", 4), chips=4)
    yield fair("weighs-nothing", ("0", "1"), other("guest", 16))
    scope = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
    yield Case(
        "usage-of-the-past",
        one(**scope),
        (job("runs", 4), job("waits", 16)),
        NEXT,
        unknown="has admission fair sharing",
        config="fair",
    )


CASES = tuple(
    case
    for cases in (
        of_names,
        of_flavors,
        of_queues,
        of_cohorts,
        of_resources,
        of_stops,
        of_checks,
        of_jobs,
        of_shares,
    )
    for case in cases()
)
