"""Draws situations of Kueue, and compares its decisions about them with simulations.

The decisions are kept in a file. Its first line has the version of Kueue. Each following line is a decision as JSON.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from random import Random

from pydantic import ValidationError

from infra.cluster.kubernetes import Json
from infra.review.admission import manifests
from infra.review.admission.rehearsal import Verdict, rehearse
from infra.review.admission.situation import Situation, Workload
from infra.stack.names import KUEUE_API_VERSION, TPU_RESOURCE
from sandbox.programs import versions
from workloads.spec.base import Spec

NAMESPACE = "default"
"""Namespace of the workloads. It is in every cluster."""
TRIAL_LABEL = "kueue-trial"
"""Label of all objects of trials."""

_PRIORITIES = (100, 500, 1000)
_NEWCOMERS_PRIORITIES = (100, 500, 500, 1000, 1000, 1000)
"""Mostly high, so that many preempt others."""
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
    flavors: list[Json]
    queues: list[Json]
    workloads: list[Json]
    """Workloads, in the order in which they are submitted."""
    newcomer: Json
    older: bool = False
    """Whether the newcomer is created before the others, and activated after they have settled."""
    stopped: str | None = None
    """Queue that is put on hold after all workloads have settled. None: no queue."""
    ended: str | None = None
    """Workload that ends after all have settled. The others settle again before the newcomer is submitted."""

    @property
    def fixtures(self) -> list[Json]:
        """Return the objects that exist before all workloads, in the order in which they are created."""
        names = [queue["metadata"]["name"] for queue in self.queues]
        local = [_object("LocalQueue", name, {"clusterQueue": name}, namespace=NAMESPACE) for name in names]
        return [*self.flavors, _object("Cohort", self.name, {}), *self.queues, *local]


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
        queues=manifests,
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
        queues=[
            _queue(random, queue, name, flavors, replace(_CROWDED, nominal=(count,)), fair_sharing=fair_sharing)
            for queue, count in chips.items()
        ],
        workloads=[large, *small, *waiting],
        newcomer={**newcomer, "metadata": {**newcomer["metadata"], "name": f"{name}-new"}},
        ended=large["metadata"]["name"],
    )


def start_trial(trial: Trial) -> tuple[Situation, Workload]:
    """Return the trial before Kueue has processed any of it."""
    created: list[Json] = []
    for second, manifest in enumerate([*trial.workloads, trial.newcomer]):
        made = {"uid": f"uid-{second}", "creationTimestamp": f"2026-01-01T00:00:{second:02}Z"}
        created.append({**manifest, "metadata": manifest["metadata"] | made})
    return situation_of(trial, created)


def situation_of(trial: Trial, found: Iterable[Json], on_hold: str | None = None) -> tuple[Situation, Workload]:
    """Return the situation of workloads as the API server returns them, of which the last one is the newcomer."""
    queues = [manifests.queue(queue) for queue in trial.queues]
    held = tuple(each.model_copy(update={"stop_policy": "Hold"}) if each.name == on_hold else each for each in queues)
    local = {(NAMESPACE, queue.name): queue.name for queue in queues}
    *others, newcomer = plain(manifests.workloads(found, local, trial.flavors))
    return Situation(queues=held, workloads=tuple(others), fair_sharing=trial.fair_sharing), newcomer


def plain(workloads: Sequence[Workload]) -> list[Workload]:
    """Return the workloads with small numbers for UIDs and times, because only their order matters."""
    uids = sorted(workload.uid for workload in workloads)
    first = min((workload.queued_at for workload in workloads), default=0.0)

    def small(workload: Workload) -> Workload:
        if admission := workload.admission:
            admission = admission.model_copy(update={"reserved_at": admission.reserved_at - first})
        changes = {"uid": f"{uids.index(workload.uid):02}", "queued_at": workload.queued_at - first}
        return workload.model_copy(update={**changes, "admission": admission})

    return [small(workload) for workload in workloads]


def _object(kind: str, name: str, spec: Json, **metadata: str) -> Json:
    about = {"name": name, "labels": {TRIAL_LABEL: ""}, **metadata}
    return {"apiVersion": KUEUE_API_VERSION, "kind": kind, "metadata": about, "spec": spec}


def _flavor(name: str) -> Json:
    return _object("ResourceFlavor", name, {"nodeLabels": {_LABEL: name}})


def _queue(
    random: Random, name: str, cohort: str | None, flavors: list[str], style: _Style, *, fair_sharing: bool
) -> Json:
    reclaim = random.choice(style.reclaim)
    pushes = not fair_sharing and reclaim != "Never" and random.random() < 0.4
    usual = random.random() < 0.6
    searches = ("MayStopSearch", "TryNextFlavor")
    offered = random.sample(flavors, random.randint(1, len(flavors)))
    weight = random.choice(("0", "500m", "1", "1", "2", "3")) if fair_sharing else None
    within = random.choice(("Never", "LowerPriority", "LowerPriority", "LowerOrNewerEqualPriority"))
    borrow, preempt = searches if usual else [random.choice(searches) for _ in searches]
    quotas = [
        {"name": flavor, "resources": [{"name": TPU_RESOURCE, **_quota(random, cohort, style)}]} for flavor in offered
    ]
    spec: Json = {
        **({"cohortName": cohort} if cohort else {}),
        **({"fairSharing": {"weight": weight}} if weight else {}),
        "namespaceSelector": {},
        "preemption": {
            "withinClusterQueue": within,
            "reclaimWithinCohort": reclaim,
            "borrowWithinCohort": {"policy": "LowerPriority" if pushes else "Never"},
        },
        "flavorFungibility": {"whenCanBorrow": borrow, "whenCanPreempt": preempt},
        "resourceGroups": [{"coveredResources": [TPU_RESOURCE], "flavors": quotas}],
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
    counts: tuple[int, ...] = (1, 1, 1, 1, 2, 2, 3),
) -> Json:
    """Return a workload of one or two pod sets."""
    pods = [random.choice(counts) for _ in range(1 if random.random() < 0.85 else 2)]
    suitable = random.sample(flavors, random.randint(1, len(flavors))) if random.random() < 0.3 else []
    spec: Json = {
        "queueName": queue,
        "priority": random.choice(priorities),
        "podSets": [
            {"name": f"set{index}", "count": count, "template": {"spec": _pod(suitable)}}
            for index, count in enumerate(pods)
        ],
    }
    return _object("Workload", name, spec, namespace=NAMESPACE)


def _pod(suitable: list[str]) -> Json:
    """Return a pod that may use the nodes of these flavors, or of all flavors if the list is empty."""
    one_of = {"key": _LABEL, "operator": "In", "values": suitable}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [one_of]}]}
    node = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    chips = {TPU_RESOURCE: str(_CHIPS_PER_POD)}
    return {
        "restartPolicy": "Never",
        **({"affinity": node} if suitable else {}),
        "containers": [{"name": "main", "image": "none", "resources": {"requests": chips, "limits": chips}}],
    }


RECORD = Path(__file__).parent.parent / "tests" / "infra" / "review" / "admission" / "decisions.jsonl"
"""File of the decisions that the tests replay."""
RECORD_AGAIN = "record again with: python -m benchmarks.kueue_trials"


class Seen(Spec):
    """Result of a newcomer in Kueue."""

    outcome: str
    """`admitted`, `preempts`, `waits`, `never`, `preempts_in_circles` if Kueue reached no stable state, or `unsaid` if
    Kueue's message does not distinguish `waits` and `never`."""
    flavors: tuple[str, ...] = ()
    """Final flavors of the newcomer."""
    preempted: dict[str, str] = {}
    """Names of the workloads that were preempted first, with the reasons."""

    def agrees_with(self, verdict: Verdict) -> bool:
        """Return whether Kueue first decided as simulated, and the newcomer finally runs in both or none."""
        if self.outcome == "preempts_in_circles":
            return verdict.preempts_in_circles
        outcomes = ("waits", "never") if self.outcome == "unsaid" else (self.outcome,)
        preempted = {target.workload: target.reason for target in verdict.preempted}
        same = verdict.outcome in outcomes and self.preempted == preempted
        placed = verdict.outcome != "admitted" or verdict.flavors == self.flavors
        ends = verdict.preempts_in_circles or verdict.admitted_in_the_end == bool(self.flavors)
        return same and placed and ends


class Decision(Spec):
    """A submitted workload and Kueue's decision about it."""

    name: str
    """Name of the trial."""
    situation: Situation
    """Situation before the newcomer was submitted."""
    newcomer: Workload
    seen: Seen

    @cached_property
    def verdict(self) -> Verdict:
        return rehearse(self.situation, self.newcomer)

    def __str__(self) -> str:
        shared = "fair sharing" if self.situation.fair_sharing else "no fair sharing"
        return f"trial {self.name}, {shared}: {'; '.join(self.verdict.lines)}. Kueue: {self.seen}"

    @property
    def agrees(self) -> bool:
        return self.seen.agrees_with(self.verdict)


def write(path: Path, trials: Iterable[tuple[str, Spec]]) -> None:
    """Write what the sandbox's Kueue did in each trial, by its name, which names of objects then do not begin with."""
    lines = [json.dumps({"kueue": versions()["kueue"]})]
    for name, found in trials:
        line = json.dumps(found.model_dump(), default=sorted, separators=(",", ":"))
        lines.append(line.replace(f"{NAMESPACE}/", "").replace(f"{name}-", ""))
    path.write_text("".join(f"{line}\n" for line in lines))


def read(path: Path) -> tuple[str, list[Decision]]:
    """Return the version of Kueue that decided, and the decisions.

    Raises:
        pydantic.ValidationError: The file was written when situations had other fields.
    """
    head, *lines = path.read_text().splitlines()
    try:
        return json.loads(head)["kueue"], [Decision.model_validate_json(line) for line in lines]
    except ValidationError as error:
        error.add_note(f"{path.name} was written when situations had other fields; {RECORD_AGAIN}")
        raise


def names(path: Path, *, fair_sharing: bool) -> list[str]:
    """Return the names of the recorded trials with or without fair sharing, also of a stale file."""
    lines = map(json.loads, path.read_text().splitlines()[1:])
    return [line["name"] for line in lines if line["situation"]["fair_sharing"] == fair_sharing]
