import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from policy.rule import Declared
from policy.slices import quantity
from tests.policy.example import declared, says
from tests.policy.examples import EXAMPLES
from tests.policy.examples.plan import (
    POD,
    QUOTA,
    cluster_queue,
    flavor,
    flex_start_pool,
    having,
    job_set,
    on_demand_pool,
    queued_pool,
    reserved_pool,
    spot_pool,
)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 20), st.integers(0, 3))
@example(16, 1)
@example(17, 1)
def test_chips_on_demand_are_counted_and_no_others(on_demand: int, others: int) -> None:
    makes = (spot_pool, reserved_pool, flex_start_pool, queued_pool)
    plan = [on_demand_pool(str(index)) for index in range(on_demand)]
    plan += [make(f"{make.__name__}-{index}") for index in range(others) for make in makes]
    expected = [f"expected at most 256 chips on demand, got {16 * on_demand}"] if 16 * on_demand > 256 else []
    assert says("on-demand-chips", *plan) == expected


def test_chips_that_fall_back_to_the_full_price_count_as_on_demand() -> None:
    fallback = {"consumeReservationType": "ANY_RESERVATION"}
    pools = [having(on_demand_pool(str(index)), "nodeConfig.reservationAffinity", fallback) for index in range(17)]
    assert says("on-demand-chips", *pools)


def test_preemptible_is_the_older_name_of_spot() -> None:
    pools = [having(on_demand_pool(str(index)), "nodeConfig.preemptible", True) for index in range(20)]
    assert says("on-demand-chips", *pools) == []


def test_a_pool_without_tpus_is_no_slice() -> None:
    gpus = having(spot_pool("gpus"), "nodeConfig.machineType", "a3-highgpu-8g")
    for rule in ("slice-offered", "one-source-of-chips", "on-demand-chips"):
        assert says(rule, gpus) == []


def test_a_job_on_demand_ends_by_a_deadline_or_with_its_stack() -> None:
    endless = having(job_set("job"), "metadata.labels", {})
    budget = declared("pulumi:index:Stash", "budget", {"input": {"expires_on": "2027-01-31", "expired": False}})
    assert says("job-ends", job_set("job"), on_demand_pool("job")) == []
    assert says("job-ends", endless, on_demand_pool("job"), budget) == []
    assert says("job-ends", endless, reserved_pool("job")) == []
    assert says("job-ends", endless, on_demand_pool("job"))


def test_a_program_without_watchdog_ends_by_a_deadline_on_any_chips() -> None:
    program = having(job_set("job"), (*POD, "containers", 0, "env"), [])
    endless = having(program, "metadata.labels", {})
    for make in (reserved_pool, spot_pool, on_demand_pool):
        assert says("job-ends", program, make("job")) == []
        assert says("job-ends", endless, make("job"))


def test_preemptions_that_restart_only_their_slice_use_up_no_restarts_either() -> None:
    rules = [{"name": "lost", "action": "RestartJobAndIgnoreMaxRestarts"}, {"name": "slice", "action": "RestartJob"}]
    job = having(job_set("job"), "spec.failurePolicy.rules", rules)
    assert says("job-saves", job, spot_pool("job")) == []
    assert says("job-saves", having(job, "spec.failurePolicy.rules", rules[1:]), spot_pool("job"))


def test_a_job_that_saves_on_its_own_disk_is_refused_on_preemptible_chips() -> None:
    written = json.dumps({"training": {"save_every_minutes": 10}, "storage": {"path": "/scratch"}})
    job = having(job_set("job"), (*POD, "containers", 0, "env", 0, "value"), written)
    assert says("job-saves", job, spot_pool("job")) == ["slice: expected checkpoints in a bucket, got '/scratch'"]
    assert says("job-saves", job, on_demand_pool("job")) == []


def test_preemptions_must_not_use_up_the_restarts_of_any_program() -> None:
    program = having(job_set("job"), (*POD, "containers", 0, "env"), [])
    counted = having(program, "spec.failurePolicy.rules", None)
    assert says("job-saves", program, spot_pool("job")) == []
    assert says("job-saves", counted, spot_pool("job"))


@pytest.mark.parametrize("rule", ["job-saves", "job-grace"])
def test_rules_on_preemptible_chips_hold_for_spot_and_flex_start(rule: str) -> None:
    job, _ = EXAMPLES[rule].failing
    for make in (spot_pool, flex_start_pool, queued_pool):
        assert says(rule, job, make(rule)), make
    for make in (on_demand_pool, reserved_pool):
        assert says(rule, job, make(rule)) == [], make


def test_a_job_may_choose_its_slices_by_node_affinity() -> None:
    term = {"matchExpressions": [{"key": "slice-group", "operator": "In", "values": ["job"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    job = having(job_set("job"), "metadata.labels", {})
    chosen = having(having(job, (*POD, "nodeSelector"), {}), (*POD, "affinity"), {"nodeAffinity": required})
    assert says("job-ends", chosen, on_demand_pool("job"))
    assert says("job-ends", chosen, on_demand_pool("other")) == []


def _queue(quota: int, index: int) -> Declared:
    """Return a team's queue with so many chips of one flavor."""
    queue = having(cluster_queue("team"), (*QUOTA, "nominalQuota"), str(quota))
    return having(queue, "metadata.name", f"team-{index}")


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=5), st.integers(1, 8))
def test_quotas_are_compared_with_the_chips_of_the_slices(slices_of_teams: list[int], slices: int) -> None:
    queues = [_queue(16 * count, index) for index, count in enumerate(slices_of_teams)]
    pools = [having(spot_pool("team"), "name", f"team-{index}") for index in range(slices)]
    plan = (*queues, *pools, flavor("team"))
    assert bool(says("quota-within-chips", *plan)) == (sum(slices_of_teams) > slices)
    assert bool(says("chips-given-out", *plan)) == (sum(slices_of_teams) < slices)


def test_a_quota_is_in_whole_slices() -> None:
    pools = [having(spot_pool("team"), "name", f"team-{index}") for index in range(2)]
    plan = (_queue(20, 0), _queue(12, 1), *pools, flavor("team"))
    assert says("chips-given-out", *plan) == [
        "expected a quota of 'team' in whole slices of 16 chips, got 20",
        "expected a quota of 'team' in whole slices of 16 chips, got 12",
    ]


def test_a_slice_is_counted_by_one_flavor() -> None:
    second = having(flavor("team"), "metadata.name", "second")
    assert says("quota-within-chips", spot_pool("team"), flavor("team"), second) == [
        "expected one flavor with the labels of this slice, got team, second"
    ]
    assert says("chips-given-out", spot_pool("other"), flavor("team")) == [
        "expected a flavor with the labels of this slice, got none"
    ]


def test_a_plan_that_shows_no_queues_yet_is_not_judged_by_them() -> None:
    empty = [declared(f"kubernetes:kueue.x-k8s.io/v1beta2:{kind}", kind, {}) for kind in ("ClusterQueue", "LocalQueue")]
    for rule in ("quota-within-chips", "chips-given-out"):
        assert says(rule, spot_pool("team"), *empty) == []


@pytest.mark.parametrize("written", ["0", "16", "2500m", "4k", "1.5k", "2M"])
def test_a_quantity_is_read_as_kubernetes_reads_it(written: str) -> None:
    assert quantity(written) == float(parse_quantity(written))
