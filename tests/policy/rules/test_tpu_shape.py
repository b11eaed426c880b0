from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.tpu import SliceShape, all_shapes
from policy.rule import Declared, ResourceRule, StackRule
from policy.rules.tpu_shape import RULES
from tests.policy.examples.plan import (
    JOB,
    POD,
    flex_start_pool,
    having,
    job_set,
    queued_pool,
    reserved_pool,
    spot_pool,
)

SHAPES = st.sampled_from(all_shapes())
AFFINITY_TERM = [{"topologyKey": "cloud.google.com/gke-nodepool"}]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def broken(*plan: Declared) -> set[str]:
    """The rules of the group that a plan breaks."""
    of_resources = {
        rule.about.id
        for rule in RULES
        if isinstance(rule, ResourceRule)
        if any(True for found in plan if found.type in rule.types for _ in rule.check(found))
    }
    of_stack = {rule.about.id for rule in RULES if isinstance(rule, StackRule) if any(True for _ in rule.check(plan))}
    return of_resources | of_stack


def pool_of(shape: SliceShape) -> Declared:
    """A slice of that shape as the program declares it."""
    placement: dict[str, Any] | None = {"type": "COMPACT", "tpuTopology": shape.topology}
    if shape.workload_policy_required:
        placement = {"type": "", "policyName": "policy", "tpuTopology": shape.topology}
    pool = having(spot_pool("slice"), ("placementPolicy",), placement if shape.multi_host else None)
    pool = having(having(pool, ("nodeCount",), shape.hosts), ("nodeConfig", "machineType"), shape.machine_type)
    pool = having(pool, ("networkConfig",), None)
    return having(pool, ("nodeConfig", "bootDisk", "diskType"), shape.boot_disk_types[0])


def job_of(shape: SliceShape) -> Declared:
    """A job on such a slice."""
    job = having(job_set("slice"), (*POD, "nodeSelector"), {"slice-group": "slice"})
    chips = {"google.com/tpu": str(shape.chips_per_host)}
    job = having(job, (*POD, "containers", 0, "resources"), {"requests": chips, "limits": chips})
    return having(having(job, (*JOB, "parallelism"), shape.hosts), (*JOB, "completions"), shape.hosts)


@settings(deadline=None, max_examples=40)
@given(SHAPES)
def test_every_slice_that_gke_offers_keeps_the_rules_with_a_job_of_its_shape(shape: SliceShape) -> None:
    assert broken(pool_of(shape), job_of(shape)) == set()


@settings(deadline=None, max_examples=40)
@given(SHAPES, st.integers(0, 5000))
def test_a_slice_of_any_other_number_of_hosts_is_refused(shape: SliceShape, hosts: int) -> None:
    pool = having(pool_of(shape), ("nodeCount",), hosts)
    assert broken(pool) == (set() if hosts == shape.hosts else {"slice-hosts"})


@settings(deadline=None, max_examples=40)
@given(SHAPES, SHAPES)
def test_a_job_of_another_shape_is_refused(shape: SliceShape, other: SliceShape) -> None:
    expected: set[str] = set()
    expected |= {"job-hosts"} if shape.hosts != other.hosts else set()
    expected |= {"job-chips"} if shape.chips_per_host != other.chips_per_host else set()
    assert broken(pool_of(shape), job_of(other)) == expected


def test_slices_of_two_kinds_are_too_many_for_a_job() -> None:
    small, large = (shape for shape in all_shapes() if shape.generation == "v6e" and shape.topology in ("4x4", "4x8"))
    assert "job-selects-slices" in broken(pool_of(small), pool_of(large), job_of(small))


def test_a_single_host_is_not_placed_and_7x_wants_its_policy_without_a_type() -> None:
    single = next(shape for shape in all_shapes() if not shape.multi_host)
    ironwood = next(shape for shape in all_shapes() if shape.workload_policy_required)
    compact = {"type": "COMPACT", "tpuTopology": single.topology}
    assert broken(having(pool_of(single), ("placementPolicy",), compact)) == {"slice-placement"}
    assert broken(having(pool_of(ironwood), ("placementPolicy", "policyName"), None)) == {"slice-placement"}
    assert broken(having(pool_of(ironwood), ("placementPolicy", "type"), "COMPACT")) == {"slice-placement"}


def test_slices_of_a_single_host_are_not_joined() -> None:
    single = next(shape for shape in all_shapes() if not shape.multi_host)
    job = having(job_of(single), ("spec", "replicatedJobs", 0, "replicas"), 2)
    assert broken(pool_of(single), pool_of(single), job) == {"job-slices"}


@pytest.mark.parametrize("make", [spot_pool, reserved_pool, flex_start_pool, queued_pool])
def test_each_capacity_keeps_the_rules(make: Any) -> None:
    assert broken(make("slice")) == set()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("autoscaling", "minNodeCount"), 1),
        (("autoscaling", "maxNodeCount"), 3),
        (("autoscaling", "totalMaxNodeCount"), 4),
        (("nodeCount",), 4),
        (("autoscaling",), None),
    ],
)
def test_a_flex_start_slice_has_all_hosts_or_none(path: Any, value: Any) -> None:
    assert "slice-hosts" in broken(having(flex_start_pool("slice"), path, value))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("management", "autoRepair"), True),
        (("autoscaling", "locationPolicy"), "BALANCED"),
        (("nodeConfig", "spot"), True),
        (("nodeConfig", "maxRunDuration"), "604801s"),
        (("nodeConfig", "machineType"), "ct5lp-hightpu-4t"),
    ],
)
def test_flex_start_wants_its_bundle(path: Any, value: Any) -> None:
    assert "flex-start-pool" in broken(having(flex_start_pool("slice"), path, value))


def test_a_queued_slice_is_a_flex_start_slice() -> None:
    assert "queued-pool" in broken(having(queued_pool("slice"), ("nodeConfig", "flexStart"), None))


def test_spot_does_not_come_from_a_reservation_and_nothing_falls_back_by_default() -> None:
    assert broken(having(reserved_pool("slice"), ("nodeConfig", "spot"), True)) == {"one-source-of-chips"}
    assert broken(having(spot_pool("slice"), ("nodeConfig", "reservationAffinity"), None)) == {"one-source-of-chips"}


def test_flex_start_is_kept_together_by_affinity_alone() -> None:
    by_annotation = job_set("slice")
    by_affinity = having(by_annotation, ("metadata", "annotations"), None)
    terms = {kind: {REQUIRED: AFFINITY_TERM} for kind in ("podAffinity", "podAntiAffinity")}
    by_affinity = having(by_affinity, (*POD, "affinity"), terms)
    assert broken(flex_start_pool("slice"), by_annotation) == {"job-one-pool-for-a-slice"}
    assert broken(flex_start_pool("slice"), by_affinity) == set()
    assert broken(spot_pool("slice"), having(by_annotation, (*POD, "affinity"), terms)) == {"job-one-pool-for-a-slice"}


def test_nodes_without_chips_are_none_of_its_business() -> None:
    assert broken(having(spot_pool("slice"), ("nodeConfig", "machineType"), "a3-highgpu-8g")) == set()
