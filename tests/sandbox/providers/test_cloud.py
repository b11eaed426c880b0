from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any, get_args

import pulumi_gcp as gcp
import pytest
from pulumi import _types as pulumi_types  # pyright: ignore[reportPrivateUsage]

from infra.cluster.kubernetes import Json
from sandbox.providers.cloud import CLUSTER, NODE_POOL, RESOURCE_POLICY, Cloud, fill, row
from sandbox.providers.plugin import Refusal
from sandbox.providers.values import Change, prune
from tests.infra.recording import Registration, run_program, stack_values

BUCKET = "gcp:storage/bucket:Bucket"
FIREWALL = "gcp:compute/firewall:Firewall"


def test_ids_that_read_alike_are_kept_apart(tmp_path: Path) -> None:
    cloud = Cloud(tmp_path)
    cloud.keep(BUCKET, "one/name", {"n": 1})
    cloud.keep(BUCKET, "two/name", {"n": 2})
    assert [properties["n"] for _, properties in cloud.every(BUCKET)].count(1) == 1
    assert cloud.find(BUCKET, "two/name") == {"n": 2}


SLICE: Json = {
    "nodeCount": 4,
    "placementPolicy": {"type": "COMPACT", "tpuTopology": "4x4"},
    "nodeConfig": {
        "machineType": "ct6e-standard-4t",
        "spot": False,
        "labels": {"team": "a", "group": "b"},
        "resourceLabels": {"team": "a"},
        "reservationAffinity": {"consumeReservationType": "NO_RESERVATION"},
        "oauthScopes": ["a"],
        "taints": [{"key": "a"}],
    },
}


def changed(base: Json, path: str, value: Any) -> Json:
    """`base` with `value` at `path`; None removes what is there."""
    key, _, rest = path.partition(".")
    kept = {name: item for name, item in base.items() if name != key}
    if rest:
        return kept | {key: changed(base.get(key, {}), rest, value)}
    return kept if value is None else kept | {key: value}


def effect(resource_type: str, before: Json, after: Json) -> str:
    """What the table says of going from `before` to `after`."""
    kind = row(resource_type)
    found = list(kind.differences(before, after))
    if any(kind.is_replaced_by(change, before, after) for change in found):
        return "replaced"
    if not found:
        return "nothing"
    return "shows again" if kind.settled(before, after) == before else "in place"


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("nodeConfig.spot", True, "replaced"),
        ("nodeConfig.spot", None, "nothing"),
        ("nodeConfig.oauthScopes", ["a", "b"], "replaced"),
        ("nodeConfig.oauthScopes", None, "nothing"),
        ("nodeConfig.reservationAffinity", None, "replaced"),
        ("nodeConfig.confidentialNodes", {"enabled": True}, "in place"),
        ("nodeConfig.confidentialNodes", {"enabled": True, "confidentialInstanceType": "TDX"}, "replaced"),
        ("nodeConfig.machineType", "ct6e-standard-8t", "in place"),
        ("nodeConfig.labels.team", None, "in place"),
        ("nodeConfig.labels", None, "nothing"),
        ("nodeConfig.resourceLabels", None, "shows again"),
        ("nodeConfig.taints", None, "in place"),
        ("nodeConfig", None, "replaced"),
        ("nodeCount", 8, "in place"),
        ("nodeCount", None, "nothing"),
        ("queuedProvisioning", {"enabled": True}, "replaced"),
        ("placementPolicy", None, "replaced"),
        ("placementPolicy.tpuTopology", "4x8", "shows again"),
    ],
)
def test_a_change_of_a_node_pool_does_what_it_does_on_gke(path: str, value: object, expected: str) -> None:
    assert effect(NODE_POOL, SLICE, changed(SLICE, path, value)) == expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"network": "a"}, {"network": "b"}, "replaced"),
        ({}, {"ipAllocationPolicy": {"stackType": "IPV4"}}, "replaced"),
        ({"ipAllocationPolicy": {"stackType": "IPV4"}}, {}, "nothing"),
        ({"privateClusterConfig": {}}, {"privateClusterConfig": {"masterIpv4CidrBlock": "10.0.0.0/28"}}, "replaced"),
        ({"enableFqdnNetworkPolicy": False}, {"enableFqdnNetworkPolicy": True}, "in place"),
        ({"enableFqdnNetworkPolicy": True}, {"enableFqdnNetworkPolicy": False}, "replaced"),
        ({"nodeConfig": {}}, {"nodeConfig": {"spot": True}}, "replaced"),
    ],
)
def test_a_change_of_a_cluster_does_what_it_does_on_gke(before: Json, after: Json, expected: str) -> None:
    assert effect(CLUSTER, before, after) == expected


@pytest.mark.parametrize(
    ("resource_type", "path", "value", "expected"),
    [
        (FIREWALL, "direction", "EGRESS", "replaced"),
        (FIREWALL, "direction", None, "nothing"),
        (FIREWALL, "network", "other", "in place"),
        (RESOURCE_POLICY, "name", "other", "in place"),
        (RESOURCE_POLICY, "workloadPolicy", None, "replaced"),
        (RESOURCE_POLICY, "workloadPolicy", {}, "replaced"),
    ],
)
def test_a_change_of_a_firewall_or_a_placement_does_what_it_does_on_compute_engine(
    resource_type: str, path: str, value: object, expected: str
) -> None:
    before: Json = {
        "name": "a",
        "network": "net",
        "direction": "INGRESS",
        "region": "us-east5",
        "workloadPolicy": {"type": "HIGH_THROUGHPUT", "acceleratorTopology": "4x4"},
    }
    assert effect(resource_type, before, changed(before, path, value)) == expected


def test_every_input_of_a_node_pool_is_known_to_replace_to_change_in_place_or_to_do_nothing() -> None:
    kind = row(NODE_POOL)
    # GKE fills them in, but the SDK lists them.
    computed_only = ("nodeConfig.effectiveTaints",)
    for path in inputs_of(gcp.container.NodePoolArgs):
        lists = (kind.replaces, kind.in_place, kind.inert, computed_only)
        classes = [any(path == known or path.startswith(f"{known}.") for known in paths) for paths in lists]
        assert sum(classes) == 1, path


def test_every_path_of_the_table_is_an_input_of_the_published_sdk() -> None:
    for resource_type, arguments in (
        (NODE_POOL, gcp.container.NodePoolArgs),
        (CLUSTER, gcp.container.ClusterArgs),
        (FIREWALL, gcp.compute.FirewallArgs),
        (RESOURCE_POLICY, gcp.compute.ResourcePolicyArgs),
    ):
        kind = row(resource_type)
        leaves = list(inputs_of(arguments))
        for paths in (kind.replaces, kind.replaces_when_off, kind.blocks, kind.inert, kind.computed, kind.kept):
            for path in paths:
                assert any(leaf == path or leaf.startswith(f"{path}.") for leaf in leaves), path


def inputs_of(arguments: type, prefix: str = "") -> Iterator[str]:
    """Paths of the leaves that an arguments class of the SDK has, in the engine's spelling."""
    types = pulumi_types.input_type_types(arguments)
    for python_name, name in pulumi_types.input_type_py_to_pulumi_names(arguments).items():
        inner = _block(types.get(name, types.get(python_name)))
        yield from inputs_of(inner, f"{prefix}{name}.") if inner else [f"{prefix}{name}"]


def _block(hint: Any) -> type | None:
    """The arguments class in a type hint such as `Optional[Input[Sequence[Input[Args]]]]`."""
    if isinstance(hint, type) and pulumi_types.is_input_type(hint):
        return hint
    return next((found for inner in get_args(hint) if (found := _block(inner))), None)


def test_an_unlisted_type_is_kept_under_a_general_id() -> None:
    facts = {"project": "p", "name": "n"}
    assert fill(row("gcp:monitoring/dashboard:Dashboard").id, facts) == "projects/p/Dashboards/n"


def test_a_missing_fact_is_reported_as_a_missing_field() -> None:
    with pytest.raises(Refusal, match="^location: required field is not set$"):
        fill(row(CLUSTER).id, {"project": "p", "name": "n"})


CAPACITIES: dict[str, Json] = {
    "plain": {"capacity": "on-demand"},
    "spot": {"capacity": "spot"},
    "reserved": {"capacity": {"kind": "reservation", "name": "chips"}},
    "flex": {"capacity": {"kind": "flex-start", "max_run_hours": 4}},
    "queued": {"capacity": {"kind": "queued", "max_run_hours": 4}},
}
SHAPES: dict[str, Json] = {
    "cube": {"generation": "v5p", "topology": "4x4x4"},
    "half": {"generation": "v5p", "topology": "2x4x4"},
    "flat": {"generation": "v6e", "topology": "4x4"},
    "ironwood": {"generation": "7x", "topology": "2x2x4"},
    "single": {"generation": "v6e", "topology": "2x2"},
}
MORE: Json = {
    "boot_disk_gb": 200,
    "image_disk": "projects/p/global/images/i",
    "second_network": True,
    "zone": "us-east5-a",
}
CONSTANTS = {
    "maintenancePolicies": "the same for every slice, and read at creation",
    "placementPolicy.type": "follows from whether there is a workload policy, and that replaces the pool",
}
"""Inert paths that the program need not replace a pool for, and why."""


@pytest.fixture(scope="module")
def pools() -> list[Registration]:
    """A slice of every shape, one of every capacity, and one with whatever else a group can have."""
    values = stack_values("dev")
    pairs = [*((shape, "plain") for shape in SHAPES), *(("flat", capacity) for capacity in CAPACITIES)]
    groups = {f"{one}-{other}": {"count": 1, **SHAPES[one], **CAPACITIES[other]} for one, other in pairs}
    groups["more"] = groups["flat-plain"] | MORE
    (job_group,) = values["slices"]
    values["slices"] |= groups
    (team,) = values["teams"].values()
    team["quota"] |= {group: 0 for group in groups}
    # No list has a price of every one of them.
    values["prices"] = {"usd_per_chip_hour": dict.fromkeys(groups, 1.0)}
    found = run_program(values).of_type(NODE_POOL)
    return [pool for pool in found if pool.inputs["name"].rpartition("-")[0] in (job_group, *groups)]


def leaves(value: Json, prefix: str = "") -> Iterator[str]:
    for key, item in value.items():
        yield from leaves(item, f"{prefix}{key}.") if isinstance(item, dict) else [f"{prefix}{key}"]


def test_what_a_pool_declares_is_known_to_replace_to_change_in_place_or_to_do_nothing(pools: list[Registration]):
    kind = row(NODE_POOL)
    for pool in pools:
        for path in leaves(pool.inputs):
            leaf = Change(path, "UPDATE")
            assert any(map(leaf.is_under, (*kind.replaces, *kind.in_place, *kind.inert))), path
            if any(map(leaf.is_under, kind.inert)):
                assert any(map(leaf.is_under, (*pool.request.replaceOnChanges, *CONSTANTS))), path


def test_no_change_of_a_slice_group_is_lost(pools: list[Registration]):
    kind = row(NODE_POOL)
    for before, after in permutations(pools, 2):
        found = list(kind.differences(before.inputs, after.inputs | {"name": before.inputs["name"]}))
        replaced = any(
            kind.is_replaced_by(change, before.inputs, after.inputs)
            or any(map(change.is_under, after.request.replaceOnChanges))
            for change in found
        )
        lost = [change for change in found if any(map(change.is_under, (*kind.inert, *kind.kept)))]
        assert replaced or not lost, (before.name, after.name, lost)


def test_gke_keeps_every_pool_as_it_is_declared(pools: list[Registration]):
    kind = row(NODE_POOL)
    for pool in pools:
        assert list(kind.differences(prune(kind.answered(pool.inputs), pool.inputs), pool.inputs)) == [], pool.name
