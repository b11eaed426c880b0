"""The program's node pools against the stand-in's table: no change of a slice group may be lost."""

from collections.abc import Iterator
from itertools import permutations

import pytest

from sandbox.providers.cloud import NODE_POOL, row
from sandbox.providers.values import Change, Object, pruned
from tests.infra.recording import Registration, run_program, stack_values

CAPACITIES: dict[str, Object] = {
    "plain": {"capacity": "on-demand"},
    "spot": {"capacity": "spot"},
    "reserved": {"capacity": {"kind": "reservation", "name": "chips"}},
    "flex": {"capacity": {"kind": "flex-start", "max_run_hours": 4}},
    "queued": {"capacity": {"kind": "queued", "max_run_hours": 4}},
}
SHAPES: dict[str, Object] = {
    "cube": {"generation": "v5p", "topology": "4x4x4"},
    "half": {"generation": "v5p", "topology": "2x4x4"},
    "flat": {"generation": "v6e", "topology": "4x4"},
    "ironwood": {"generation": "7x", "topology": "2x2x4"},
    "single": {"generation": "v6e", "topology": "2x2"},
}
MORE: Object = {
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
    """One slice of every shape, of every capacity, and one with whatever else a group can have."""
    values = stack_values("dev")
    groups = {
        f"{shape}-{capacity}": {"count": 1, **SHAPES[shape], **CAPACITIES[capacity]}
        for shape in SHAPES
        for capacity in CAPACITIES
    }
    groups["more"] = groups["flat-plain"] | MORE
    (job_group,) = values["slices"]
    values["slices"] |= groups
    (team,) = values["teams"].values()
    team["quota"] |= {group: 0 for group in groups}
    # No list has a price of every one of them.
    values["prices"] = {"usd_per_chip_hour": dict.fromkeys(groups, 1.0)}
    found = run_program(values).of_type(NODE_POOL)
    return [pool for pool in found if pool.inputs["name"].rpartition("-")[0] in (job_group, *groups)]


def leaves(value: Object, prefix: str = "") -> Iterator[str]:
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
        assert list(kind.differences(pruned(kind.answered(pool.inputs), pool.inputs), pool.inputs)) == [], pool.name
