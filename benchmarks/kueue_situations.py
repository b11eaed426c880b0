"""Situations for Kueue to decide, drawn from a seed.

Owns what a trial consists of, as manifests: flavors, queues, workloads to fill them, and one that
comes last. `benchmarks.kueue_trials` carries it out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Any

from infra.admission import manifests
from infra.admission.rehearsal import rehearse
from infra.admission.situation import Situation, Workload
from infra.admission.verdict import Verdict

type Manifest = dict[str, Any]

NAMESPACE = "trials"
OF_TRIALS = {"labelSelector": "kueue-trial"}
"""Query for objects of trials."""

_API = "kueue.x-k8s.io/v1beta2"
_TPU = "google.com/tpu"
_PRIORITIES = (100, 500, 1000)
_NEWCOMERS_PRIORITIES = (100, 500, 500, 1000, 1000, 1000)
"""Mostly high, so that many push others out."""
_CHIPS_PER_POD = 4
_LABEL = "trial-flavor"
_DRAWN_FOR_EACH = 20


@dataclass(frozen=True)
class Trial:
    """One situation. All names begin with its own."""

    name: str
    flavors: list[Manifest]
    cohorts: list[Manifest]
    queues: list[Manifest]
    local_queues: list[Manifest]
    workloads: list[Manifest]
    """In the order in which they are submitted."""
    newcomer: Manifest
    older: bool
    """The newcomer is created before the others, and not active until they have settled."""
    stopped: str | None
    """A queue that is put on hold once all have settled."""


def draw(name: str, seed: int, *, fair_sharing: bool) -> Trial:
    """The trial of this seed."""
    random = Random(seed)
    flavors = [f"{name}-{letter}" for letter in "xyz"[: random.choice((1, 2, 2, 3))]]
    cohort = name if random.random() < 0.9 else None
    queues = [f"{name}-q{index}" for index in range(random.choice((1, 2, 3, 3, 4)) if cohort else 1)]
    manifests = [_queue(random, queue, cohort, flavors, fair_sharing=fair_sharing) for queue in queues]
    workloads = [
        _workload(random, f"{name}-w{index}", random.choice(queues), flavors, _PRIORITIES)
        for index in range(random.randint(3, 10))
    ]
    return Trial(
        name=name,
        flavors=[_flavor(flavor) for flavor in flavors],
        cohorts=[_object("Cohort", cohort, {})] if cohort else [],
        queues=manifests,
        local_queues=[_object("LocalQueue", queue, {"clusterQueue": queue}, namespace=NAMESPACE) for queue in queues],
        workloads=workloads,
        newcomer=_workload(random, f"{name}-new", random.choice(queues), flavors, _NEWCOMERS_PRIORITIES),
        older=random.random() < 0.2,
        stopped=random.choice(queues) if random.random() < 0.06 else None,
    )


def varied(count: int, seed: int, *, fair_sharing: bool) -> list[Trial]:
    """Trials of as many kinds as there are, in equal numbers, going by what is rehearsed of them.

    Drawn blindly, one in ten would preempt, and hardly any for fairness.
    """
    kinds: dict[object, list[Trial]] = {}
    for number in range(_DRAWN_FOR_EACH * count):
        trial = draw(f"t{seed + number}", seed + number, fair_sharing=fair_sharing)
        kinds.setdefault(_kind(rehearse(*expected(trial, fair_sharing=fair_sharing))), []).append(trial)
    return list(islice(_in_turn(list(kinds.values())), count))


def _in_turn(kinds: list[list[Trial]]) -> Iterator[Trial]:
    for turn in range(max(map(len, kinds))):
        yield from (trials[turn] for trials in kinds if turn < len(trials))


def _kind(verdict: Verdict) -> object:
    if verdict.restless:
        return "restless"
    reasons = tuple(sorted(preempted.reason for preempted in verdict.preempted))
    return verdict.outcome, bool(verdict.borrowed), reasons, verdict.admitted_in_the_end, len(verdict.shortages)


def expected(trial: Trial, *, fair_sharing: bool) -> tuple[Situation, Workload]:
    """The trial before Kueue has looked at any of it."""
    queues = tuple(map(manifests.queue, trial.queues))
    local = {(NAMESPACE, queue.name): queue.name for queue in queues}
    created = [_created(manifest, second) for second, manifest in enumerate([*trial.workloads, trial.newcomer])]
    *others, newcomer = manifests.workloads(created, local, trial.flavors)
    return Situation(queues=queues, workloads=tuple(others), fair_sharing=fair_sharing), newcomer


def _created(manifest: Manifest, second: int) -> Manifest:
    """As the API server would give it back."""
    made = {"uid": f"uid-{second}", "creationTimestamp": f"2026-01-01T00:00:{second:02}Z"}
    return {**manifest, "metadata": manifest["metadata"] | made}


def _object(kind: str, name: str, spec: Manifest, **metadata: str) -> Manifest:
    labels = {"kueue-trial": ""}
    return {"apiVersion": _API, "kind": kind, "metadata": {"name": name, "labels": labels, **metadata}, "spec": spec}


def _flavor(name: str) -> Manifest:
    taint = {"key": _TPU, "value": "present", "effect": "NoSchedule"}
    return _object("ResourceFlavor", name, {"nodeLabels": {_LABEL: name}, "nodeTaints": [taint]})


def _queue(random: Random, name: str, cohort: str | None, flavors: list[str], *, fair_sharing: bool) -> Manifest:
    reclaim = random.choice(("Never", "LowerPriority", "Any", "Any", "Any"))
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
                "coveredResources": [_TPU],
                "flavors": [
                    {"name": flavor, "resources": [{"name": _TPU, **_quota(random, cohort)}]} for flavor in offered
                ],
            }
        ],
    }
    return _object("ClusterQueue", name, spec)


def _quota(random: Random, cohort: str | None) -> dict[str, str]:
    nominal = random.choice((0, 4, 8, 8, 12, 16, 16))
    quota = {"nominalQuota": str(nominal)}
    if cohort and random.random() < 0.3:
        quota["borrowingLimit"] = str(random.choice((0, 4, 8, 12)))
    if cohort and random.random() < 0.3:
        quota["lendingLimit"] = str(random.randrange(0, nominal + 1, 4))
    return quota


def _workload(random: Random, name: str, queue: str, flavors: list[str], priorities: tuple[int, ...]) -> Manifest:
    counts = [random.choice((1, 1, 1, 1, 2, 2, 3)) for _ in range(1 if random.random() < 0.85 else 2)]
    suitable = random.sample(flavors, random.randint(1, len(flavors))) if random.random() < 0.3 else []
    spec: Manifest = {
        "queueName": queue,
        "priority": random.choice(priorities),
        "podSets": [
            {"name": f"set{index}", "count": count, "template": {"spec": _pod(suitable)}}
            for index, count in enumerate(counts)
        ],
    }
    return _object("Workload", name, spec, namespace=NAMESPACE)


def _pod(suitable: list[str]) -> Manifest:
    """A pod that may use the nodes of these flavors; of any if none is named."""
    one_of = {"key": _LABEL, "operator": "In", "values": suitable}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [one_of]}]}
    node = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    chips = {_TPU: str(_CHIPS_PER_POD)}
    return {
        "restartPolicy": "Never",
        "tolerations": [{"key": _TPU, "operator": "Exists", "effect": "NoSchedule"}],
        **({"affinity": node} if suitable else {}),
        "containers": [{"name": "main", "image": "none", "resources": {"requests": chips, "limits": chips}}],
    }
