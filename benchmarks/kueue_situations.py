"""Draws situations for Kueue from a seed.

A trial consists of manifests: flavors, queues, workloads that fill them, and a newcomer that is submitted last.
`benchmarks.kueue_trials` runs it.
"""

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from infra.review.admission import manifests
from infra.review.admission.situation import Situation, Workload
from infra.stack.names import TPU_RESOURCE

type Manifest = dict[str, Any]

NAMESPACE = "trials"
OF_TRIALS = {"labelSelector": "kueue-trial"}
"""Query that selects the objects of trials."""

_API = "kueue.x-k8s.io/v1beta2"
_PRIORITIES = (100, 500, 1000)
_NEWCOMERS_PRIORITIES = (100, 500, 500, 1000, 1000, 1000)
"""Mostly high, so that many preempt others."""
_COUNTS = (1, 1, 1, 1, 2, 2, 3)
_CHIPS_PER_POD = 4
_LABEL = "trial-flavor"


@dataclass(frozen=True)
class _Style:
    """Values from which a queue is drawn."""

    nominal: tuple[int, ...] = (0, 4, 8, 8, 12, 16, 16)
    reclaim: tuple[str, ...] = ("Never", "LowerPriority", "Any", "Any", "Any")
    borrowing_limited: float = 0.3
    """Probability of a borrowing limit."""
    lending_limited: float = 0.3


_CROWDED = _Style(
    reclaim=("Never", "Never", "LowerPriority", "LowerPriority", "Any"), borrowing_limited=0.7, lending_limited=0.1
)
"""Queues that mostly cannot reclaim chips and have borrowing limits."""


@dataclass(frozen=True)
class Trial:
    """A situation. The names of all its objects begin with its name."""

    name: str
    fair_sharing: bool
    flavors: list[Manifest]
    cohorts: list[Manifest]
    queues: list[Manifest]
    local_queues: list[Manifest]
    workloads: list[Manifest]
    """Workloads, in the order in which they are submitted."""
    newcomer: Manifest
    older: bool
    """Whether the newcomer is created before the others, and activated after they have settled."""
    stopped: str | None
    """Queue that is put on hold after all workloads have settled. None: no queue."""
    ended: str | None = None
    """Workload that ends after all have settled. The others settle again before the newcomer is submitted."""


def draw_named(name: str, *, fair_sharing: bool) -> Trial:
    """Return the trial of this name: `t7` is drawn from seed 7, and `c7` is a crowded one."""
    return (draw_crowded if name.startswith("c") else draw)(name, int(name[1:]), fair_sharing=fair_sharing)


def draw(name: str, seed: int, *, fair_sharing: bool) -> Trial:
    """Return the trial of this seed."""
    random = Random(seed)
    flavors = [f"{name}-{letter}" for letter in "xyz"[: random.choice((1, 2, 2, 3))]]
    cohort = name if random.random() < 0.9 else None
    queues = [f"{name}-q{index}" for index in range(random.choice((1, 2, 3, 3, 4)) if cohort else 1)]
    manifests = [_queue(random, queue, cohort, flavors, _Style(), fair_sharing=fair_sharing) for queue in queues]
    workloads = [
        draw_workload(random, f"{name}-w{index}", random.choice(queues), flavors, _PRIORITIES)
        for index in range(random.randint(3, 10))
    ]
    return Trial(
        name=name,
        fair_sharing=fair_sharing,
        flavors=[_flavor(flavor) for flavor in flavors],
        cohorts=[_object("Cohort", cohort, {})] if cohort else [],
        queues=manifests,
        local_queues=[_object("LocalQueue", queue, {"clusterQueue": queue}, namespace=NAMESPACE) for queue in queues],
        workloads=workloads,
        newcomer=draw_workload(random, f"{name}-new", random.choice(queues), flavors, _NEWCOMERS_PRIORITIES),
        older=random.random() < 0.2,
        stopped=random.choice(queues) if random.random() < 0.06 else None,
    )


def draw_crowded(name: str, seed: int, *, fair_sharing: bool) -> Trial:
    """Return the trial of this seed in which queues compete for the chips of a workload that ends.

    Kueue then considers the first workloads of all queues in one cycle, as it does when the quotas of a stack change.
    All priorities differ, because Kueue decides at random between equal workloads of two queues.
    """
    random = Random(seed)
    flavors = [f"{name}-{letter}" for letter in "xy"[: random.choice((1, 1, 1, 1, 2))]]
    lender, *borrowers = queues = [f"{name}-q{index}" for index in range(random.choice((4, 5)))]
    chips = {lender: random.choice((12, 16, 16, 20)), **{queue: random.choice((0, 4, 8)) for queue in borrowers}}
    large, *small = [
        draw_workload(random, f"{name}-r{index}", queue, flavors, (2000 - index,), (chips[queue] // _CHIPS_PER_POD,))
        for index, queue in enumerate(queues)
        if chips[queue]
    ]
    asking = random.choices(queues, (1, *(3 for _ in borrowers)), k=random.randint(8, 11))
    priorities = sorted(random.sample(range(100, 1600, 100), len(asking)), reverse=True)
    waiting = [
        draw_workload(random, f"{name}-w{index}", queue, flavors, (priority,), (1, 1, 2, 2, 3))
        for index, (queue, priority) in enumerate(zip(asking, priorities, strict=True))
    ]
    newcomer = waiting.pop(random.randrange(len(waiting)))
    return Trial(
        name=name,
        fair_sharing=fair_sharing,
        flavors=[_flavor(flavor) for flavor in flavors],
        cohorts=[_object("Cohort", name, {})],
        queues=[
            _queue(random, queue, name, flavors, replace(_CROWDED, nominal=(count,)), fair_sharing=fair_sharing)
            for queue, count in chips.items()
        ],
        local_queues=[_object("LocalQueue", queue, {"clusterQueue": queue}, namespace=NAMESPACE) for queue in queues],
        workloads=[large, *small, *waiting],
        newcomer={**newcomer, "metadata": {**newcomer["metadata"], "name": f"{name}-new"}},
        older=False,
        stopped=None,
        ended=large["metadata"]["name"],
    )


def start_trial(trial: Trial) -> tuple[Situation, Workload]:
    """Return the trial before Kueue has processed any of it."""
    queues = tuple(map(manifests.queue, trial.queues))
    local = {(NAMESPACE, queue.name): queue.name for queue in queues}
    created = [_created(manifest, second) for second, manifest in enumerate([*trial.workloads, trial.newcomer])]
    *others, newcomer = manifests.workloads(created, local, trial.flavors)
    return Situation(queues=queues, workloads=tuple(others), fair_sharing=trial.fair_sharing), newcomer


def _created(manifest: Manifest, second: int) -> Manifest:
    """Return a manifest as the API server would return it."""
    made = {"uid": f"uid-{second}", "creationTimestamp": f"2026-01-01T00:00:{second:02}Z"}
    return {**manifest, "metadata": manifest["metadata"] | made}


def _object(kind: str, name: str, spec: Manifest, **metadata: str) -> Manifest:
    labels = {"kueue-trial": ""}
    return {"apiVersion": _API, "kind": kind, "metadata": {"name": name, "labels": labels, **metadata}, "spec": spec}


def _flavor(name: str) -> Manifest:
    taint = {"key": TPU_RESOURCE, "value": "present", "effect": "NoSchedule"}
    return _object("ResourceFlavor", name, {"nodeLabels": {_LABEL: name}, "nodeTaints": [taint]})


def _queue(
    random: Random, name: str, cohort: str | None, flavors: list[str], style: _Style, *, fair_sharing: bool
) -> Manifest:
    reclaim = random.choice(style.reclaim)
    pushes = not fair_sharing and reclaim != "Never" and random.random() < 0.4
    usual = random.random() < 0.6
    searches = ("MayStopSearch", "TryNextFlavor")
    offered = random.sample(flavors, random.randint(1, len(flavors)))
    spec: Manifest = {
        **({"cohortName": cohort} if cohort else {}),
        **({"fairSharing": {"weight": random.choice(("0", "500m", "1", "1", "2", "3"))}} if fair_sharing else {}),
        "namespaceSelector": {},
        "preemption": {
            "withinClusterQueue": random.choice(
                ("Never", "LowerPriority", "LowerPriority", "LowerOrNewerEqualPriority")
            ),
            "reclaimWithinCohort": reclaim,
            "borrowWithinCohort": {"policy": "LowerPriority" if pushes else "Never"},
        },
        "flavorFungibility": {
            "whenCanBorrow": "MayStopSearch" if usual else random.choice(searches),
            "whenCanPreempt": "TryNextFlavor" if usual else random.choice(searches),
        },
        "resourceGroups": [
            {
                "coveredResources": [TPU_RESOURCE],
                "flavors": [
                    {"name": flavor, "resources": [{"name": TPU_RESOURCE, **_quota(random, cohort, style)}]}
                    for flavor in offered
                ],
            }
        ],
    }
    return _object("ClusterQueue", name, spec)


def _quota(random: Random, cohort: str | None, style: _Style) -> dict[str, str]:
    nominal = random.choice(style.nominal)
    quota = {"nominalQuota": str(nominal)}
    if cohort and random.random() < style.borrowing_limited:
        quota["borrowingLimit"] = str(random.choice((0, 4, 8, 12)))
    if cohort and random.random() < style.lending_limited:
        quota["lendingLimit"] = str(random.randrange(0, nominal + 1, 4))
    return quota


def draw_workload(
    random: Random,
    name: str,
    queue: str,
    flavors: list[str],
    priorities: tuple[int, ...] = _PRIORITIES,
    counts: tuple[int, ...] = _COUNTS,
) -> Manifest:
    """Return a workload of one or two pod sets."""
    pods = [random.choice(counts) for _ in range(1 if random.random() < 0.85 else 2)]
    suitable = random.sample(flavors, random.randint(1, len(flavors))) if random.random() < 0.3 else []
    spec: Manifest = {
        "queueName": queue,
        "priority": random.choice(priorities),
        "podSets": [
            {"name": f"set{index}", "count": count, "template": {"spec": _pod(suitable)}}
            for index, count in enumerate(pods)
        ],
    }
    return _object("Workload", name, spec, namespace=NAMESPACE)


def _pod(suitable: list[str]) -> Manifest:
    """Return a pod that may use the nodes of these flavors, or of all flavors if the list is empty."""
    one_of = {"key": _LABEL, "operator": "In", "values": suitable}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [one_of]}]}
    node = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    chips = {TPU_RESOURCE: str(_CHIPS_PER_POD)}
    return {
        "restartPolicy": "Never",
        "tolerations": [{"key": TPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}],
        **({"affinity": node} if suitable else {}),
        "containers": [{"name": "main", "image": "none", "resources": {"requests": chips, "limits": chips}}],
    }
