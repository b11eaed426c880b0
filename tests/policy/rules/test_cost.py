import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from policy.rule import Declared, StackRule
from policy.rules.cost import RULES
from tests.policy.example import declared
from tests.policy.examples.cost import EXAMPLES
from tests.policy.examples.plan import (
    POD,
    flex_start_pool,
    having,
    job_set,
    on_demand_pool,
    queued_pool,
    reserved_pool,
    spot_pool,
    system_pool,
)


def says(rule_id: str, *plan: Declared) -> list[str]:
    """What a rule says of a plan."""
    (rule,) = (rule for rule in RULES if rule.about.id == rule_id)
    if isinstance(rule, StackRule):
        return [fault.says for fault in rule.check(plan)]
    return [fault for found in plan if found.type in rule.types for fault in rule.check(found)]


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 20), st.integers(0, 3))
@example(16, 1)
@example(17, 1)
def test_chips_that_are_bought_on_demand_are_counted_and_no_others(bought: int, others: int) -> None:
    makes = (spot_pool, reserved_pool, flex_start_pool, queued_pool)
    plan = [on_demand_pool(str(index)) for index in range(bought)]
    plan += [make(f"{make.__name__}-{index}") for index in range(others) for make in makes]
    expected = [f"expected at most 256 chips on demand, got {16 * bought}"] if 16 * bought > 256 else []
    assert says("on-demand-chips", *plan) == expected


def test_chips_that_fall_back_to_the_full_price_count_as_bought() -> None:
    fallback = {"consumeReservationType": "ANY_RESERVATION"}
    pools = [having(on_demand_pool(str(index)), ("nodeConfig", "reservationAffinity"), fallback) for index in range(17)]
    assert says("on-demand-chips", *pools)


def test_a_job_on_demand_ends_by_a_deadline_or_with_its_stack() -> None:
    endless = having(job_set("job"), ("metadata", "labels"), {})
    budget = declared("pulumi:index:Stash", "budget", {"input": {"expires_on": "2027-01-31", "expired": False}})
    assert says("job-ends", job_set("job"), on_demand_pool("job")) == []
    assert says("job-ends", endless, on_demand_pool("job"), budget) == []
    assert says("job-ends", endless, reserved_pool("job")) == []
    assert says("job-ends", endless, on_demand_pool("job"))


def test_a_program_that_no_watchdog_looks_after_ends_by_a_deadline_on_any_chips() -> None:
    program = having(job_set("job"), (*POD, "containers", 0, "env"), [])
    endless = having(program, ("metadata", "labels"), {})
    for make in (reserved_pool, spot_pool, on_demand_pool):
        assert says("job-ends", program, make("job")) == []
        assert says("job-ends", endless, make("job"))


def test_a_job_that_saves_on_its_own_disk_is_refused_where_hosts_are_taken_away() -> None:
    told = json.dumps({"training": {"save_every_minutes": 10}, "storage": {"path": "/scratch"}})
    job = having(job_set("job"), (*POD, "containers", 0, "env", 0, "value"), told)
    assert says("job-saves", job, spot_pool("job")) == [
        "replicated job 'slice': expected checkpoints in a bucket, got '/scratch'"
    ]
    assert says("job-saves", job, on_demand_pool("job")) == []


@pytest.mark.parametrize("rule_id", ["job-saves", "job-restarts-uncounted", "job-grace"])
def test_rules_for_hosts_that_are_taken_away_cover_flex_start_as_well_as_spot(rule_id: str) -> None:
    job, _ = EXAMPLES[rule_id].failing
    for make in (spot_pool, flex_start_pool, queued_pool):
        assert says(rule_id, job, make(rule_id)), make
    for make in (on_demand_pool, reserved_pool):
        assert says(rule_id, job, make(rule_id)) == [], make


def test_cpus_are_counted_in_every_zone_and_in_machines_of_any_size() -> None:
    pool = having(system_pool("cluster"), ("nodeConfig", "machineType"), "n2-custom-16-32768")
    assert says("system-nodes-small", pool) == []
    (told,) = says("system-nodes-small", having(pool, ("nodeLocations",), ["us-east5-a", "us-east5-b", "us-east5-c"]))
    assert told.endswith("got 96")


def test_a_preemptible_slice_is_one_of_spot() -> None:
    pools = [having(on_demand_pool(str(index)), ("nodeConfig", "preemptible"), True) for index in range(20)]
    assert says("on-demand-chips", *pools) == []
