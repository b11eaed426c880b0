"""Stopped queues, checks, topologies, jobs of other kinds, and other orders, for `tests.cli.rehearse.situations`."""

from collections.abc import Iterator
from typing import Any

from tests.cli.rehearse.cases import (
    NEXT,
    ONE,
    OTHERS,
    SPOT,
    URGENT,
    WITHIN,
    Case,
    affinity,
    bare,
    flavor,
    job,
    one,
    other,
    plain_job,
    pod,
    queue,
    third,
    two,
)
from tests.cli.rehearse.clusters import V6E, Object, local_queue, named


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
            # When this Kueue drains a LocalQueue, it does not try the jobs again that were set aside for its jobs.
            unknown=("runs waits although its chips are free",) if policy == "HoldAndDrain" else (),
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
    """Admission checks."""
    checked: Any = {"admissionChecksStrategy": {"admissionChecks": [{"name": "check"}]}}
    yield Case(
        "check-of-others",
        [*one(**checked), _check("example.com/licenses")],
        (),
        NEXT,
        unknown=("AdmissionCheck check (controller example.com/licenses)",),
    )
    yield Case("check-of-others-and-a-full-queue", [*one(4, **checked), _check("example.com/licenses")], (), NEXT)
    yield Case("check-that-is-not-active", [*one(**checked), _check("example.com/licenses", active=False)], (), NEXT)
    yield Case("check-that-does-not-exist", one(**checked), (), NEXT)
    elsewhere: Any = {"admissionChecksStrategy": {"admissionChecks": [{"name": "check", "onFlavors": ["spot"]}]}}
    both = [
        *ONE,
        flavor("spot", {**V6E, **SPOT}),
        queue({"tpu": 8, "spot": 16}, **elsewhere),
        _check("example.com/licenses"),
    ]
    yield Case("check-on-another-flavor", both, (), job("next", pod(8, affinity=affinity("NotIn", "true"))))


def of_topologies() -> Iterator[Case]:
    """Topology-aware scheduling, by the flavor or by the job."""
    topology = {
        "kind": "Topology",
        **named("racks"),
        "spec": {"levels": [{"nodeLabel": "cloud.google.com/gke-nodepool"}]},
    }
    aware = [flavor("tpu", topologyName="racks"), topology, *ONE[1:], queue()]
    both = "asks for topology-aware scheduling", "ResourceFlavor tpu is topology-aware"
    yield Case("topology-aware-flavor", aware, (), NEXT, unknown=both[1:])
    asks = {"kueue.x-k8s.io/podset-required-topology": "cloud.google.com/gke-nodepool"}
    job_asks = job("next", 8, pods=asks)
    yield Case("topology-aware-job", one(), (), job_asks, unknown=both[:1])
    yield Case("topology-aware-job-and-flavor", aware, (), job_asks, unknown=both)


def of_sizes() -> Iterator[Case]:
    """Jobs that change their size."""
    yield Case(
        "partial-job",
        one(),
        (job("runs", 8),),
        plain_job("next", 4, 4, **{"job-min-parallelism": "1"}),
        unknown=("accepts fewer pods (kueue.x-k8s.io/job-min-parallelism)",),
    )
    partial = plain_job("partial", 4, 4, **{"job-min-parallelism": "1"})
    yield Case(
        "partial-job-runs", one(), (job("runs", 8), partial), job("next", 4), unknown=("accepts fewer pods (minCount)",)
    )
    apart = [*one(), queue(16, "other"), OTHERS]
    there = {**partial, "metadata": {**partial["metadata"], "labels": other("", 0)["metadata"]["labels"]}}
    yield Case("partial-job-of-another-queue", apart, (there,), NEXT)
    yield Case("elastic-job", one(), (), plain_job("next", 4, 2, **{"elastic-job": "true"}), unknown=("is elastic",))


def of_jobs() -> Iterator[Case]:
    """Jobs of other kinds than JobSet."""
    gates = {"kueue.x-k8s.io/admission-gated-by": "example.com/budget"}
    yield Case("job-behind-a-gate", one(), (), job("next", 8, annotations=gates))
    yield Case("gate-of-another-job", one(), (job("gated", 16, priority="high", annotations=gates),), NEXT)
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


def of_orders() -> Iterator[Case]:
    """Fair sharing, and other orders of the jobs of a queue."""
    reclaims: Any = {"preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}}

    def fair(name: str, weights: tuple[str, str], *jobs: Object, chips: int = 8) -> Case:
        own, theirs = ({"fairSharing": {"weight": weight}} for weight in weights)
        objects = [*two(0, 0, **reclaims, **own, other={**theirs, **reclaims}), *third(16)]
        return Case(f"fair-{name}", objects, jobs, job("next", chips), config="fair")

    yield fair("takes-half", ("1", "1"), other("guest", 8), other("more", 8))
    yield fair("weighs", ("3", "1"), job("runs", 8), other("guest", 4), other("more", 4), chips=4)
    # Kueue tries the first job of such a queue again and again, which would slow down many other cases.
    fifo: Any = {"queueingStrategy": "StrictFIFO"}
    jobs = job("runs", 4), job("waits", 16)
    yield Case("strict-fifo-with-a-waiting-job", one(**fifo), jobs, NEXT, unknown=("is StrictFIFO",), config="fair")
    theirs = other("waits", 32), other("behind", 4)
    first = "ClusterQueue other is StrictFIFO", "behind waits although its chips are free"
    lender = two(8, 8, other=fifo)
    yield Case("strict-fifo-of-the-lender", lender, theirs, job("next", 16), unknown=first, config="fair")
    scope: Any = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
    yield Case(
        "usage-of-the-past",
        one(**scope),
        (job("runs", 4), job("waits", 16)),
        NEXT,
        unknown=("has admission fair sharing",),
        config="fair",
    )
