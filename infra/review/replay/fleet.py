"""The queues and the chips on which a trace is replayed: those of a stack file, or those of a cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from infra.review.admission import manifests, rehearsal
from infra.review.admission.situation import Queue
from infra.stack.cost import group_rate
from infra.stack.kueue import flavor_name
from infra.stack.manifests import Object
from infra.stack.names import (
    ACCELERATOR_LABEL,
    FLEX_START_LABEL,
    QUEUED_LABEL,
    SECONDS_PER_HOUR,
    SPOT_LABEL,
    TOPOLOGY_LABEL,
)
from infra.stack.settings.stack import Settings
from infra.stack.tpu import dimensions, generations, interpret

_CHIPS_PER_HOST = 4


@dataclass(frozen=True)
class Group:
    """Equal slices, which are one flavor."""

    name: str
    """Name of the slice group, or of the flavor in a cluster that no stack describes."""
    generation: str
    topology: str
    """Empty if the flavor has slices of any topology."""
    slice_chips: int
    """Chips of a slice; of a host if the flavor has slices of any topology."""
    chips: int
    """Chips of all slices, without spares."""
    reservation: str | None = None
    spot: bool = False
    """Whether Google may take its chips at any time, which is not simulated."""
    on_request: bool = False
    """Whether chips arrive some time after a job requests them, and are billed until it returns them."""
    run_hours: float | None = None
    """Hours after which requested chips are taken back. `None` if they stay."""
    usd_per_chip_hour: float | None = None
    """`None` if the price is unknown."""

    def has(self, shape: str) -> bool:
        """Return whether its slices have a shape: its own name, a topology, or a type such as `v6e-16`."""
        if shape == self.name:
            return True
        generation, topology = interpret(self.generation, shape)
        if self.topology:
            return (generation, topology) == (self.generation, self.topology)
        return generation == self.generation and chips_of_topology(topology) > 0


@dataclass(frozen=True)
class Place:
    """Where a job of a trace may run."""

    queue: str
    flavors: frozenset[str]
    slice_chips: int


@dataclass(frozen=True)
class Fleet:
    """Queues and slices."""

    name: str
    queues: tuple[Queue, ...]
    groups: Mapping[str, Group]
    """Groups by flavor."""
    fair_sharing: bool
    teams: Mapping[str, str]
    """Queues by the names that a trace may use for a team: the queue's own, and its namespaces."""

    def place(self, team: str, shape: str) -> Place | tuple[str, str]:
        """Return where a job may run; if nowhere, the name of the wrong field and what is expected there."""
        queue = self.teams.get(team)
        if queue is None:
            return "team", f"one of {', '.join(sorted({*self.teams.values()}))}"
        (offered,) = ([quota.flavor for quota in each.flavors] for each in self.queues if each.name == queue)
        known = [flavor for flavor in offered if flavor in self.groups]
        flavors = [flavor for flavor in known if self.groups[flavor].has(shape)]
        if not flavors:
            names = dict.fromkeys(self.groups[flavor].topology or self.groups[flavor].name for flavor in known)
            return "shape", f"a shape of team {team}: {', '.join(names) or '(there are none)'}"
        first = self.groups[flavors[0]]
        chips = first.slice_chips if first.topology else chips_of_topology(interpret(first.generation, shape)[1])
        return Place(queue, frozenset(flavors), chips or first.slice_chips)


def fleet_of_stack(name: str, settings: Settings) -> Fleet:
    """Return the queues and slices of a stack."""
    found = rehearsal.situation(settings, ())
    groups = {
        flavor_name(key, group, settings.scheduling.placement): Group(
            name=key,
            generation=group.generation,
            topology=group.topology,
            slice_chips=group.shape.chips,
            chips=group.chips,
            reservation=group.capacity.reserved,
            spot=group.capacity.spot,
            on_request=group.capacity.on_request,
            run_hours=None if group.capacity.run_seconds is None else group.capacity.run_seconds / SECONDS_PER_HOUR,
            usd_per_chip_hour=group_rate(key, group, settings.cloud, settings.prices).usd_per_chip_hour,
        )
        for key, group in settings.slices.items()
    }
    teams = {team.namespace: key for key, team in settings.teams.items()} | {key: key for key in settings.teams}
    return Fleet(name, found.queues, groups, found.fair_sharing, teams)


def fleet_of_cluster(
    name: str, lists: Mapping[str, Sequence[Object]], prices: Mapping[str, float], *, fair_sharing: bool
) -> Fleet:
    """Return the queues of a cluster. Its nominal quotas of chips are taken for its chips.

    `lists` has ClusterQueues, LocalQueues and ResourceFlavors by the plural name of their kind, and `prices` the known
    US dollars per chip-hour by flavor.
    """
    queues = [queue for each in lists["clusterqueues"] if (queue := manifests.chip_queue(each))]
    flavors = {
        each["metadata"]["name"]: each.get("spec", {}).get("nodeLabels", {}) for each in lists["resourceflavors"]
    }
    chips: dict[str, int] = {}
    for queue in queues:
        for quota in queue.flavors:
            chips[quota.flavor] = chips.get(quota.flavor, 0) + quota.nominal
    groups = {flavor: _group(flavor, flavors.get(flavor, {}), count, prices) for flavor, count in chips.items()}
    teams = {
        each["metadata"][key]: each["spec"].get("clusterQueue", "")
        for key in ("namespace", "name")
        for each in lists["localqueues"]
    } | {queue.name: queue.name for queue in queues}
    known = {queue.name for queue in queues}
    return Fleet(
        name, tuple(queues), groups, fair_sharing, {team: each for team, each in teams.items() if each in known}
    )


def _group(flavor: str, labels: Mapping[str, str], chips: int, prices: Mapping[str, float]) -> Group:
    names = {each.accelerator: each.name for each in generations()}
    topology = labels.get(TOPOLOGY_LABEL, "")
    return Group(
        name=flavor,
        generation=names.get(labels.get(ACCELERATOR_LABEL, ""), ""),
        topology=topology,
        slice_chips=chips_of_topology(topology) or _CHIPS_PER_HOST,
        chips=chips,
        spot=labels.get(SPOT_LABEL) == "true",
        on_request=any(labels.get(label) == "true" for label in (FLEX_START_LABEL, QUEUED_LABEL)),
        usd_per_chip_hour=prices.get(flavor),
    )


def chips_of_topology(topology: str) -> int:
    """Return the chips of a topology; 0 if it is none."""
    try:
        return prod(dimensions(topology))
    except ValueError:
        return 0
