"""Changes of valid stack files, most of which make them wrong. `tests/golden/faults.txt` has what is said of each."""

import json
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from math import inf
from typing import NamedTuple

from infra.stack.settings.read import parse
from tests.infra.recording import Values, scale_values, stack_values
from tests.infra.spoiling import put, remove


class Faults(NamedTuple):
    """Changes of one stack file. A value that is `...` is removed."""

    name: str
    make: Callable[[], Values]
    below: str
    """Path of what is changed."""
    changes: Sequence[Values]
    read: Callable[[Values], object] = parse

    def spoilt(self) -> Iterator[tuple[str, Values]]:
        """Yield each change as text, and the stack file with it."""
        valid = self.make()
        for change in self.changes:
            values = deepcopy(valid)
            for path, value in change.items():
                (remove(self.below + path) if value is ... else put(self.below + path, deepcopy(value)))(values)
            told = (
                f"{path}: {'nothing' if value is ... else json.dumps(value, default=str)}"
                for path, value in change.items()
            )
            yield ", ".join(told), values


def dev() -> Values:
    return stack_values("dev") | {"image": stack_values("prod")["image"]}


GROUP, _LITE = "slices.trillium", {"generation": "v6e", "topology": "2x4", "count": 1, "capacity": "spot"}
_OWN, _USERS = "teams.research.quota.trillium", "teams.research.members.users"
_FLEX: Values = {f"{GROUP}.capacity": {"kind": "flex-start", "max_run_hours": 1}}
_RESERVED: Values = {f"{GROUP}.capacity": {"kind": "reservation", "name": "chips"}, "job.max_hours": 1}

OF_SECTIONS: list[Values] = [
    {"cloud": ...},
    {"clouds": {}},
    {"cluster.name": "a-very-very-long-name"},
    {"cluster.name": 7},
    {"cluster.system_machine_type": "banana"},
    {"cluster.system_machine_type": "ct6e-standard-4t"},
    {"cluster.release_channel": "regular"},
    *({"cluster.deletion_protection": written} for written in ("on off", "false")),
    {"cluster.ram_disk_gib": 48},
    {"cluster.authorized_networks": {"office": "203.0.113.0/24", "home": "0.0.0.0/0"}},
    {"cluster.encryption_key": "projects/p/locations/global/keyRings/r/cryptoKeys/k"},
    {"cluster.security_group": "all-teams@example.com"},
    {"slices": {}},
    {"slices": [_LITE]},
    {"slices.Lite": _LITE},
    {f"{GROUP}.count": "many"},
    {f"{GROUP}.count": "2"},
    {f"{GROUP}.count": 2.5},
    {f"{GROUP}.count": "2.5"},
    {f"{GROUP}.topology": "3x3"},
    {f"{GROUP}.topolgy": "2x4"},
    {f"{GROUP}.topology": "2x2"},
    {f"{GROUP}.machine_type": "ct6e-standard-1t"},
    {f"{GROUP}.generation": "v6e", f"{GROUP}.topology": "v5e-16"},
    {f"{GROUP}.generation": "v6e-16", f"{GROUP}.topology": "v6e-32"},
    {f"{GROUP}.topology": "v6e-8"},
    {f"{GROUP}.image_disk": "trainer-images"},
    {f"{GROUP}.boot_disk_gb": "200Gi"},
    {f"{GROUP}.spot": True, f"{GROUP}.capacity": ...},
    *({f"{GROUP}.capacity": capacity} for capacity in ("Spot", "preemptible", "reserved", "dws")),
    {"teams.research.quota.ironwood": 8},
    {"teams.research.quota.trilium": 0},
    {_OWN: 17},
    {_OWN: True},
    {_OWN: {"chips": 16, "borrowing_limit": 0, "lending_limit": 16}},
    {"teams.other": {"namespace": "research", "quota": {"trillium": 0}}},
    *({"teams.research.namespace": reserved} for reserved in ("kueue-system", "default")),
    {"teams.research.members": {"users": ["ada@example.com"], "groups": ["research@example.com"]}},
    {_USERS: ["Ada@example.com"]},
    {_USERS: ["ada"]},
    {"image.reference": "trainer:latest"},
    {"image": {}},
    {"image.build": True},
    {"image": {"build": False}},
    {"datasets": {"bucket": "gs://text"}},
    {"datasets": {"bucket": "text", "mount": True}, "job.host_network": True},
    {"prices.usd_per_chip_hour.trilium": 2.0},
    {"scheduling.placement": "topology-aware"} | _FLEX,
    # Several faults at once hide nothing and lead to no other.
    {f"{GROUP}.topology": "3x3", f"{GROUP}.count": 0, "job.preset": "huge", "job.colour": "red"}
    | {"job.slices": {"group": "ironwood", "count": 0}},
    {"job.colour": "red", "teams.research.quota": {"trillium": 8}},
]

_CHIPS: Values = {"kind": "reservation", "name": "chips"}
_QUEUED: Values = {"kind": "queued", "max_run_hours": 4}
_FLEX_4: Values = _QUEUED | {"kind": "flex-start"}


def _of(generation: str, topology: str, capacity: Values) -> Values:
    return {f"{GROUP}.generation": generation, f"{GROUP}.topology": topology, f"{GROUP}.capacity": capacity}


def _falling_back(*groups: Values, count: int = 2) -> Values:
    """A job that falls back from its group to others."""
    names = ["second", "third"][: len(groups)]
    of_job = {"group": "trillium", "fallback": names, "count": count}
    quota = dict.fromkeys(["trillium", *names], 16)
    return {f"slices.{name}": _LITE | {"count": 2} | group for name, group in zip(names, groups, strict=True)} | {
        "job.slices": of_job,
        "teams.research.quota": quota,
    }


OF_CAPACITY: list[Values] = [
    *(
        {f"{GROUP}.capacity": capacity}
        for capacity in (
            *("reservation", "flex-start", "cheap", 7, {"name": "chips"}, _QUEUED),
            _FLEX_4 | {"max_run_hour": 1},
            *(_FLEX_4 | {"max_run_hours": hours} for hours in (0.1, 169, inf)),
            _CHIPS | {"name": "projects/p/reservations/r"},
            _CHIPS | {"project": "p" * 31},
        )
    ),
    _of("7x", "4x4x4", _CHIPS | {"sub_block": "s"}),
    _of("v5p", "4x4x4", _CHIPS | {"block": "b"}),
    _of("7x", "4x4x4", _CHIPS | {"block": "b", "sub_block": "s"}),
    _of("7x", "4x4x4", _CHIPS | {"block": "b"}) | {f"{GROUP}.count": 145},
    _of("v4", "4x4x4", _FLEX_4),
    _of("v5e", "4x4", _FLEX_4),
    _of("v4", "2x2x1", _QUEUED),
    _falling_back({"capacity": _QUEUED}, count=1) | {f"{GROUP}.capacity": _FLEX_4},
    _falling_back({"topology": "4x4"}, {"count": 1}) | {"teams.research.quota.third": 8},
]

_PLACE = "network.nodes", "network.pods", "network.services", "network.second_nodes"
_NODES, _PODS, _SERVICES, _SECOND = _PLACE
_ON_SECOND = {f"{GROUP}.second_network": True, "job.host_network": True}
_WINDOW = {"start": "2026-01-03T02:00:00Z", "end": "2026-01-02T02:00:00Z", "recurrence": "FREQ=WEEKLY;BYDAY=SA"}
OF_PLACES: list[Values] = [
    {_NODES: "10.0.0.1/18"},
    {_NODES: "10.0.0.0/30"},
    {_PODS: "10.16.0.0/22"},
    {_SERVICES: "10.16.0.0/15"},
    {_PODS: "8.0.0.0/12"},
    {_SERVICES: "10.0.16.0/20"},
    {_NODES: "10.0.0.0/28", f"{GROUP}.count": 5},
    {_PODS: "10.16.0.0/21", f"{GROUP}.count": 13},
    {_SECOND: "10.2.0.0/29", f"{GROUP}.count": 3} | _ON_SECOND,
    {_SECOND: "10.0.0.0/24"} | _ON_SECOND,
    {f"{GROUP}.generation": "v5e"} | _ON_SECOND,
    {f"{GROUP}.second_network": True},
    {"cloud.region": "us-east-5"},
    *({"cloud.zone": zone} for zone in ("us-east1-b", "us-east5-z")),
    *({f"{GROUP}.zone": zone} for zone in ("us-east1-b", "us-east5", "us-east5-", "b")),
    {"cluster.maintenance": _WINDOW},
    {"cluster.maintenance": _WINDOW | {"recurrence": "weekly"}},
    # Nothing is known about a machine whose name does not contain its size.
    *({"cluster.system_machine_type": f"{kind}"} for kind in ("e2-medium", "n2d-custom-4-8192", "n2-custom-2-2048")),
]
MACHINE, _COUNT = "cluster.system_machine_type", "cluster.system_nodes"
OF_CONTROLLERS: list[Values] = [
    {MACHINE: "e2-standard-4", _COUNT: 3},
    {MACHINE: "e2-standard-8", _COUNT: 3},
    {MACHINE: "e2-standard-8", _COUNT: 1},
    {MACHINE: "e2-highcpu-8", _COUNT: 3},
    {MACHINE: "c3-standard-4-lssd", _COUNT: 3},
    {MACHINE: "m1-megamem-96", _COUNT: 1},
]

_SHARED = {"name": "shared", "location": "us-east5-b"}
FOUND: Values = {"name": "research", "existing": _SHARED}
_INSTALLED: Values = {"name": "research", "existing": {**_SHARED, "kueue": "install"}}
_VPC: Values = {"network": "corporate", "subnet": "tpus", "pods": "tpu-pods", "services": "tpu-services"}
_PATIENCE = {"ready_minutes": 20, "fair_sharing": True}
OF_WHAT_EXISTS: list[Values] = [
    {"cluster": {**FOUND, "release_channel": "STABLE"}, _NODES: "10.0.0.0/20"},
    {"cluster": {"name": "research", "existing": {"name": "shared", "location": "europe-west4"}}},
    {"cluster": {"name": "research", "existing": {"name": "X_", "location": "us-east5"}}},
    # A Kueue that the stack does not install keeps its configuration.
    {"cluster": FOUND, "scheduling": _PATIENCE},
    {"cluster": _INSTALLED, "scheduling": _PATIENCE},
    {"network.existing": {**_VPC, "project": "my-host"}},
    {"network.existing": _VPC, _PODS: "10.16.0.0/12"} | _ON_SECOND,
    {"cluster": FOUND, "network.existing": _VPC},
    {f"{GROUP}.existing": True, f"{GROUP}.boot_disk_gb": 200},
    {"cluster": FOUND, f"{GROUP}.existing": True},
    # Node pools that exist have nodes.
    {"cluster": FOUND, f"{GROUP}.existing": True} | _FLEX,
]

TOTAL, _HOUR = "budget.usd_total", "budget.usd_per_hour"
_PRICE = "prices.usd_per_chip_hour.trillium"
OF_MONEY: list[Values] = [
    {"budget": {"alerts": {"billing_account": "my-account"}}},
    {"budget": {"alerts": {"at_percent": []}}},
    {"budget": {"expires_on": "31.12.2027"}},
    {"budget.expires_on": "2026-02-30"},
    # Capacity that has yet to come counts.
    {_HOUR: 10} | _FLEX,
    {_HOUR: 10, _PRICE: 1} | _FLEX,
    # A job without an end, or on chips of an unknown price, keeps to no budget. What is advised is legal.
    {TOTAL: 194.4},
    {TOTAL: 1e9},
    {TOTAL: "$500"},
    {TOTAL: 0.01},
    {TOTAL: 0.01, "job.max_hours": 1},
    {TOTAL: 1e6} | _RESERVED,
    # A plan may cost just its budget.
    {_HOUR: 16 * 1.215, TOTAL: 3 * 16 * 1.215, "job.max_hours": 3},
    # Nothing is bought on demand at an unknown price.
    *(
        {f"{GROUP}.generation": "7x", f"{GROUP}.topology": "2x2x2", f"{GROUP}.capacity": capacity}
        | {"job.training": {"global_batch": 32}, "prices": {"usd_per_chip_hour": prices}}
        for capacity, prices in (("on-demand", {}), ("on-demand", {"trillium": 9.0}), ("spot", {}))
    ),
]


def _two_teams() -> Values:
    values = dev()
    values["teams"]["other"] = {"namespace": "other", "quota": {"trillium": 0}}
    return values


_FAIR: Values = {"scheduling.fair_sharing": True}
_BORROWS = {"while_borrowing": "lower-priority"}
_LENDING = {"trillium": {"chips": 8, "lending_limit": 8}}
OF_TEAMS: list[Values] = [
    {"teams.other.quota.trillium": {"chips": 0, "lending_limit": 4}},
    {"teams.other.weight": 2},
    {"teams.other.weight": 0.0001} | _FAIR,
    {"teams.other.preemption": _BORROWS} | _FAIR,
    {"teams.other.preemption": _BORROWS | {"reclaim": "never"}},
    *({_OWN: own, "teams.other.quota.trillium": other} for own, other in ((16, 0), (8, 8), (0, 16))),
    {_OWN: {"chips": 8, "borrowing_limit": 8}, "teams.other.quota.trillium": {"chips": 8, "lending_limit": 8}},
    {_OWN: {"chips": 16, "lending_limit": 0, "borrowing_limit": 0}},
    {_OWN: 12},
    {_OWN: 8, "teams.other.quota.trillium": 4},
    {_OWN: {"chips": 8, "borrowing_limit": 4}, "teams.other.quota.trillium": 8},
    {_OWN: 8, "teams.other.quota.trillium": {"chips": 8, "lending_limit": 2}},
    {_OWN: 0, "teams.other.quota.trillium": 4, "teams.third": {"namespace": "third", "quota": _LENDING}},
    # A team with a fault of its own is not taken for one that lends nothing.
    {_OWN: 8, "teams.other.quota.trillium": "many"},
    # Every group that a job may fall back to must be able to take it.
    *(
        {"slices.azure": _LITE | {"count": 2}, "job.slices.fallback": ["azure"], "teams.research.quota": quota}
        for quota in ({"trillium": 16, "azure": 8}, {"trillium": 16})
    ),
]

OF_THE_STACK = (
    Faults("sections", dev, "", OF_SECTIONS),
    Faults("capacity", dev, "", OF_CAPACITY),
    Faults("places and machines", dev, "", OF_PLACES),
    Faults("machines for the controllers of many slices", scale_values, "", OF_CONTROLLERS),
    Faults("what exists", lambda: stack_values("dev"), "", OF_WHAT_EXISTS),
    Faults("money", dev, "", OF_MONEY),
    Faults("two teams", _two_teams, "", OF_TEAMS),
)
