"""Changes of valid stack files, most of which make them wrong. `tests/golden/faults.txt` has what is said of each."""

import json
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from math import inf
from typing import NamedTuple

from infra.stack.settings.values import HIDDEN
from tests.infra.one_job import unnamed
from tests.infra.recording import Values, scale_values, stack_values
from tests.infra.spoiling import put, remove
from tests.infra.stack.settings.test_containers import with_container
from tests.infra.stack.settings.test_jobs import CONTAINER, several_jobs
from tests.infra.stack.test_pathways import IMAGES, on_one_host, stack_with
from workloads.spec import METRICS_PORT


class Faults(NamedTuple):
    """Changes of one stack file. A value that is `...` is removed."""

    name: str
    make: Callable[[], Values]
    below: str
    """Path of what is changed."""
    changes: Sequence[Values]

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


_GROUP, _LITE = "slices.trillium", {"generation": "v6e", "topology": "2x4", "count": 1, "capacity": "spot"}
_OWN, _USERS = "teams.research.quota.trillium", "teams.research.members.users"
_FLEX: Values = {f"{_GROUP}.capacity": {"kind": "flex-start", "max_run_hours": 1}}
_RESERVED: Values = {f"{_GROUP}.capacity": {"kind": "reservation", "name": "chips"}, "job.max_hours": 1}

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
    {f"{_GROUP}.count": "many"},
    {f"{_GROUP}.count": "2"},
    {f"{_GROUP}.count": 2.5},
    {f"{_GROUP}.count": "2.5"},
    {f"{_GROUP}.topology": "3x3"},
    {f"{_GROUP}.topolgy": "2x4"},
    {f"{_GROUP}.topology": "2x2"},
    {f"{_GROUP}.machine_type": "ct6e-standard-1t"},
    {f"{_GROUP}.generation": "v6e", f"{_GROUP}.topology": "v5e-16"},
    {f"{_GROUP}.generation": "v6e-16", f"{_GROUP}.topology": "v6e-32"},
    {f"{_GROUP}.topology": "v6e-8"},
    {f"{_GROUP}.image_disk": "trainer-images"},
    {f"{_GROUP}.boot_disk_gb": "200Gi"},
    {f"{_GROUP}.spot": True, f"{_GROUP}.capacity": ...},
    *({f"{_GROUP}.capacity": capacity} for capacity in ("Spot", "preemptible", "reserved", "dws")),
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
    {f"{_GROUP}.topology": "3x3", f"{_GROUP}.count": 0, "job.preset": "huge", "job.colour": "red"}
    | {"job.slices": {"group": "ironwood", "count": 0}},
    {"job.colour": "red", "teams.research.quota": {"trillium": 8}},
]

_CHIPS: Values = {"kind": "reservation", "name": "chips"}
_QUEUED: Values = {"kind": "queued", "max_run_hours": 4}
_FLEX_4: Values = _QUEUED | {"kind": "flex-start"}


def _of(generation: str, topology: str, capacity: Values) -> Values:
    return {f"{_GROUP}.generation": generation, f"{_GROUP}.topology": topology, f"{_GROUP}.capacity": capacity}


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
        {f"{_GROUP}.capacity": capacity}
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
    _of("7x", "4x4x4", _CHIPS | {"block": "b"}) | {f"{_GROUP}.count": 145},
    _of("v4", "4x4x4", _FLEX_4),
    _of("v5e", "4x4", _FLEX_4),
    _of("v4", "2x2x1", _QUEUED),
    _falling_back({"capacity": _QUEUED}, count=1) | {f"{_GROUP}.capacity": _FLEX_4},
    _falling_back({"topology": "4x4"}, {"count": 1}) | {"teams.research.quota.third": 8},
]

_PLACE = "network.nodes", "network.pods", "network.services", "network.second_nodes"
_NODES, _PODS, _SERVICES, _SECOND = _PLACE
_ON_SECOND = {f"{_GROUP}.second_network": True, "job.host_network": True}
_WINDOW = {"start": "2026-01-03T02:00:00Z", "end": "2026-01-02T02:00:00Z", "recurrence": "FREQ=WEEKLY;BYDAY=SA"}
OF_PLACES: list[Values] = [
    {_NODES: "10.0.0.1/18"},
    {_NODES: "10.0.0.0/30"},
    {_PODS: "10.16.0.0/22"},
    {_SERVICES: "10.16.0.0/15"},
    {_PODS: "8.0.0.0/12"},
    {_SERVICES: "10.0.16.0/20"},
    {_NODES: "10.0.0.0/28", f"{_GROUP}.count": 5},
    {_PODS: "10.16.0.0/21", f"{_GROUP}.count": 13},
    {_SECOND: "10.2.0.0/29", f"{_GROUP}.count": 3} | _ON_SECOND,
    {_SECOND: "10.0.0.0/24"} | _ON_SECOND,
    {f"{_GROUP}.generation": "v5e"} | _ON_SECOND,
    {f"{_GROUP}.second_network": True},
    {"cloud.region": "us-east-5"},
    *({"cloud.zone": zone} for zone in ("us-east1-b", "us-east5-z")),
    *({f"{_GROUP}.zone": zone} for zone in ("us-east1-b", "us-east5", "us-east5-", "b")),
    {"cluster.maintenance": _WINDOW},
    {"cluster.maintenance": _WINDOW | {"recurrence": "weekly"}},
    # Nothing is known about a machine whose name does not contain its size.
    *({"cluster.system_machine_type": f"{kind}"} for kind in ("e2-medium", "n2d-custom-4-8192", "n2-custom-2-2048")),
]
_MACHINE, _COUNT = "cluster.system_machine_type", "cluster.system_nodes"
OF_CONTROLLERS: list[Values] = [
    {_MACHINE: "e2-standard-4", _COUNT: 3},
    {_MACHINE: "e2-standard-8", _COUNT: 3},
    {_MACHINE: "e2-standard-8", _COUNT: 1},
    {_MACHINE: "e2-highcpu-8", _COUNT: 3},
    {_MACHINE: "c3-standard-4-lssd", _COUNT: 3},
    {_MACHINE: "m1-megamem-96", _COUNT: 1},
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
    {f"{_GROUP}.existing": True, f"{_GROUP}.boot_disk_gb": 200},
    {"cluster": FOUND, f"{_GROUP}.existing": True},
    # Node pools that exist have nodes.
    {"cluster": FOUND, f"{_GROUP}.existing": True} | _FLEX,
]

_TOKENS, _LORA = {"path": "gs://b/t", "weight": 1}, {"rank": 8, "alpha": 16}
_BETA1 = {"job.optimizer": {"beta1": 0.8}, "job.allow_changes": ["optimizer.beta1"]}
_STRETCHED = {"factor": 2, "low_frequency_factor": 1, "high_frequency_factor": 4, "original_length": 64}
_WINDOWS = {"size": 0, "pattern": ["local", "globl"]}


def _mixture(**datasets: Values) -> Values:
    return {"source": "mixture", "held_out_fraction": 0.01, "datasets": datasets}


OF_TRAINING: list[Values] = [
    {"job": "tiny"},
    *({"job.name": name} for name in ("x" * 27, "teams", "Tiny", "tiny ")),
    {"job.existing_run": "new"},
    {"job.preset": "llama-3-8b"},
    {"job.team": "reserch"},
    *({"job.max_hours": hours} for hours in ("24", "4h", "inf")),
    {"job.secrets": "ONE, TWO"},
    {"job.records": True},
    {"job.backend": "pathways"},
    {"job.kind": "container"},
    {"job.sweep": {"training.seed": [0, 1]}},
    {"job.slice_failure": "continue"},
    {"job.slices.grup": "a"},
    {"job.slices.group": "trilium"},
    {"job.slices.min_count": 3},
    {"job.slices.fallback": ["ironwood"]},
    {"job.slices.fallback": ["trillium"]},
    {"job.mesh": "2x8"},
    {"job.mesh": {"replica": 2, "fsdp": 8, "zebra": 1}},
    {"job.mesh": {"replica": 2, "fsdp": 4}},
    {"job.mesh": {"replica": 1, "fsdp": 16}},
    {"job.training": {"stepz": 5}},
    *({"job.training": {"steps": steps}} for steps in ("1e9", "1M")),
    {"job.training": {"global_batch": 10}},
    {"job.training": {"lora": _LORA}},
    {"job.training": {"lora": _LORA}, "job.optimizer": {"kind": "muon"}},
    {"job.training.sync_every": 2},
    {"job.training.lost_rows": "next-step"},
    {"job.data": {"path": "gs://b/t"}},
    {"job.data": {"source": "token-file", "path": "/home/me/tokens", "held_out_fraction": 0.1}},
    {"job.data": {"source": "python-stdlib", "max_bytes": 9, "held_out_fraction": "1%"}},
    {"job.data": _mixture(web={"pth": "gs://b/t"})},
    {"job.data": _mixture(web=_TOKENS, code=_TOKENS)},
    {"job.data": _mixture()},
    {"job.preset": "llama-3.2-1b"},
    {"job.preset": "llama-3.2-1b", "job.training": {"global_batch": 10}},
    {"job.model": {"query_heads": 3, "rope_scaling": _STRETCHED, "rope_linear_factor": 2}},
    {"job.model": {"layers": 0, "activation": "relu", "windows": _WINDOWS, "qk": 1}, "job.training": {"steps": 0}},
    {"job.optimizer": {"beta1": 2}, "job.training": {"steps": 0}},
    {"job.optimizer": {"lerning_rate": 1}},
    {"job.optimizer": {"beta1": 0.8}, "job.allow_changes": ["beta1"]},
    {"job.optimizer": {"momentum": 0.9}},
    {"job.optimizer": {"kind": "muon"}, "job.allow_changes": ["optimizer.kind"]},
    {"job.allow_changes": ["training.seed"]},
    {"job.allow_changes": ["optimizer.clip_norm"]},
    _BETA1 | {"job.existing_run": "new"},
    {"job.trackers": {"wandb": {"project": "llm"}}},
    {"job.trackers": {"wandb": {"project": "llm"}}, "secrets": {"HF_TOKEN": HIDDEN, "WANDB_API_KEY": HIDDEN}}
    | {"job.secrets": ["HF_TOKEN"]},
    {"job.compiler_options": {"--xla_flag": 1}},
    {"job.libtpu_args": {"megascale_a": "1 --b=2"}},
]

_TOTAL, _HOUR = "budget.usd_total", "budget.usd_per_hour"
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
    {_TOTAL: 194.4},
    {_TOTAL: 1e9},
    {_TOTAL: "$500"},
    {_TOTAL: 0.01},
    {_TOTAL: 0.01, "job.max_hours": 1},
    {_TOTAL: 1e6} | _RESERVED,
    # A plan may cost just its budget.
    {_HOUR: 16 * 1.215, _TOTAL: 3 * 16 * 1.215, "job.max_hours": 3},
    # Nothing is bought on demand at an unknown price.
    *(
        {f"{_GROUP}.generation": "7x", f"{_GROUP}.topology": "2x2x2", f"{_GROUP}.capacity": capacity}
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


OF_JOBS: list[Values] = [
    {"job": {"name": "other"}},
    {"jobs": []},
    {"jobs": {"Big": CONTAINER}},
    {"jobs": {"a": "nothing", "b": {"kind": "contaner"}}},
    # 32 chips of 2.70 USD for 100 hours, 16 for 5, and 16 of 4.50 for 10.
    {_TOTAL: 9000},
    {_TOTAL: 8640 + 216 + 360, "jobs.serve.max_hours": ...},
]
OF_ONE_OF_THEM: list[Values] = [
    {"name": "a"},
    {"kind": "batch"},
    {"team": "sales"},
    {"image": "sweep:1"},
    {"env": {"2a": ""}},
    {"env": {"TPU_NAME": ""}},
    {"ports": {"web_1": 80}},
    {"ports": {"web": 8431}},
    {"secrets": ["TOKEN"]},
    {"slices": {"group": "ironwood", "count": 3}, "team": "research"},
    {"slices": {"group": "single", "count": 1}, "team": "research"},
]


def _volume(path: str, size_gib: int = 1, **more: str) -> Values:
    return {"path": path, "size_gib": size_gib, **more}


_FILE = {"file": "/tmp/alive", "silence_seconds": 300}
OF_CONTAINERS: list[Values] = [
    *({"volumes": {"a": _volume(path)}} for path in ("cache", "/a/../tmp", "/tmp", "/proc/1")),
    {"volumes": {"a": _volume("/a"), "b": _volume("/a")}},
    {"volumes": {"a": _volume("/a", 51)}},
    {"volumes": {"a": _volume("/a", 600, medium="memory")}},
    {"resources": {"vcpus": 170}},
    {"resources": {"memory_gib": 700}},
    {"env": {"N": 3}},
    {"command": "python x"},
    {"heartbeat": {"file": "alive", "silence_seconds": 60}},
    {"heartbeat": {"silence_seconds": 60}},
    {"heartbeat": {**_FILE, "port": "http"}},
    {"heartbeat": {**_FILE, "path": "/healthz"}},
    {"heartbeat": {"port": "grpc", "silence_seconds": 60}},
    {"heartbeat": {**_FILE, "file": "/var/alive"}},
    {"heartbeat": {"port": "http", "path": "healthz", "silence_seconds": 60}},
    {"check_slices": True},
    {"records": True, "ports": {"metrics": 8000}},
    {"records": True, "ports": {"other": METRICS_PORT}},
    {"slice_failure": "continue"},
]
_SERVE = "jobs.serve"
_PROXY = IMAGES["proxy_image"].partition("@")[0]
_HEAD_ON_ONE_HOST = {f"{_SERVE}.pathways.head_vcpus": 8}
_ONE_CHIP = {f"{_GROUP}.topology": "1x1", f"{_GROUP}.machine_type": "ct6e-standard-1t"}
OF_PATHWAYS: list[Values] = [
    {f"{_SERVE}.pathways": ...},
    {f"{_SERVE}.backend": "direct"},
    {f"{_SERVE}.pathways.proxy_image": f"{_PROXY}:latest"},
    {f"{_SERVE}.pathways.proxy_image": ...},
    {f"{_SERVE}.volumes": {"a": _volume("/a", 218, medium="memory")}},
    {f"{_SERVE}.resources": {"vcpus": 8}},
    {f"{_SERVE}.check_slices": True},
    {f"{_SERVE}.records": True},
    {_MACHINE: "e2-standard-4", "scheduling.placement": "topology-aware", f"{_SERVE}.slices.min_count": 1}
    | {f"{_SERVE}.env": {"JAX_PLATFORMS": "tpu"}, f"{_SERVE}.ports": {"mine": 29001}},
]


def _swept(**changes: object) -> Values:
    """The training job of the stack as the sweep `study`."""
    values = dev()
    slices = {"slices": {"group": "trillium", "count": 1}}
    return values | {"jobs": {"study": unnamed(values) | slices | {"sweep": {"training.seed": [0, 1]}} | changes}}


OF_SWEEPS: list[Values] = [
    {"sweep": {}},
    *({"sweep": {"training.seed": seeds}} for seeds in ([], 1, [1, 2, 1])),
    {"sweep": {"team": ["research"]}},
    {"sweep": {"training.seed": [*range(13)], "training.global_batch": [64, 128, 256, 512, 1024]}},
    {"sweep": {"training.sead": [1, 2]}},
    {"sweep": {"slices.count": ["one", 1]}},
]

ALL = (
    Faults("sections", dev, "", OF_SECTIONS),
    Faults("capacity", dev, "", OF_CAPACITY),
    Faults("places and machines", dev, "", OF_PLACES),
    Faults("machines for the controllers of many slices", scale_values, "", OF_CONTROLLERS),
    Faults("what exists", lambda: stack_values("dev"), "", OF_WHAT_EXISTS),
    Faults("a training job", dev, "", OF_TRAINING),
    Faults("money", dev, "", OF_MONEY),
    Faults("two teams", _two_teams, "", OF_TEAMS),
    Faults("several jobs", several_jobs, "", OF_JOBS),
    Faults("one of several jobs", several_jobs, "jobs.serve.", OF_ONE_OF_THEM),
    Faults("a container", lambda: with_container(dev()), "jobs.serve.", OF_CONTAINERS),
    Faults("a container that drives all slices by Pathways", lambda: stack_with(dev()), "", OF_PATHWAYS),
    Faults(
        "one that shares its host",
        lambda: on_one_host(dev()),
        "",
        [_HEAD_ON_ONE_HOST, _HEAD_ON_ONE_HOST | _ONE_CHIP],
    ),
    Faults("a sweep", _swept, "jobs.study.", OF_SWEEPS),
)
