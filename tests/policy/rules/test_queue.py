from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from policy.resources import chips
from policy.rule import Declared, StackRule
from policy.rules.queue import RULES
from tests.policy.example import declared
from tests.policy.examples.plan import (
    POD,
    QUOTA,
    cluster_queue,
    configuration,
    flavor,
    having,
    job_set,
    local_queue,
    namespace,
    queued_pool,
    spot_pool,
)

NAMES = st.sets(st.sampled_from(["cpu", "memory", "google.com/tpu", "ephemeral-storage", "example.com/nic"]))


def says(rule_id: str, *plan: Declared) -> list[str]:
    """What a rule says of a plan."""
    (rule,) = (rule for rule in RULES if rule.about.id == rule_id)
    if isinstance(rule, StackRule):
        return [fault.says for fault in rule.check(plan)]
    return [fault for found in plan if found.type in rule.types for fault in rule.check(found)]


def queue_of(quota: int, index: int) -> Declared:
    """A team's queue with so many chips of one flavor."""
    queue = having(cluster_queue("team"), (*QUOTA, "nominalQuota"), str(quota))
    return having(queue, ("metadata", "name"), f"team-{index}")


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=5), st.integers(1, 8))
def test_quotas_are_the_chips_that_there_are(slices_of_teams: list[int], slices: int) -> None:
    queues = [queue_of(16 * count, index) for index, count in enumerate(slices_of_teams)]
    pools = [having(spot_pool("team"), ("name",), f"team-{index}") for index in range(slices)]
    plan = (*queues, *pools, flavor("team"))
    given_out = sum(slices_of_teams)
    assert bool(says("quota-within-chips", *plan)) == (given_out > slices)
    assert bool(says("chips-given-out", *plan)) == (given_out < slices)
    assert says("quota-in-whole-slices", *plan) == []


@pytest.mark.parametrize("written", ["0", "16", "2500m", "4k", "1.5k", "2M"])
def test_a_quantity_is_read_as_kubernetes_reads_it(written: str) -> None:
    assert chips(written) == float(parse_quantity(written))


@settings(deadline=None, max_examples=40)
@given(NAMES, NAMES, NAMES)
def test_what_pods_request_is_counted_or_left_out(asked: set[str], counted: set[str], left_out: set[str]) -> None:
    requests = {name: "1" for name in asked} | {"google.com/tpu": "4"}
    job = having(job_set("team"), (*POD, "containers", 0, "resources"), {"requests": requests})
    queue = having(cluster_queue("team"), ("spec", "resourceGroups", 0, "coveredResources"), sorted(counted))
    kueue = configuration("team", resources={"excludeResourcePrefixes": sorted(left_out)})
    missing = set(requests) - counted - left_out
    assert bool(says("requests-covered", job, local_queue("team"), queue, kueue)) == bool(missing)


def test_kueues_configuration_is_read_from_the_charts_values_as_well() -> None:
    written = configuration("team", integrations={"frameworks": []}).properties["data"][
        "controller_manager_config.yaml"
    ]
    values: dict[str, Any] = {"managerConfig": {"controllerManagerConfigYaml": written}}
    chart = declared("kubernetes:helm.sh/v4:Chart", "kueue", {"values": values})
    assert says("kueue-manages-jobs", chart) == says("kueue-manages-jobs", configuration("t", integrations={})) != []


def test_a_team_with_two_cluster_queues_is_refused_and_one_with_queues_for_its_jobs_is_not() -> None:
    second = having(local_queue("team"), ("metadata", "name"), "team.job")
    plan = (namespace("team"), local_queue("team"), configuration("team"))
    assert says("one-queue-for-each-team", *plan, second) == []
    elsewhere = having(second, ("spec", "clusterQueue"), "other")
    assert says("one-queue-for-each-team", *plan, elsewhere) == [
        "expected queues to one ClusterQueue in namespace 'team', got 2"
    ]


def test_a_namespace_that_kueue_does_not_manage_needs_no_queue() -> None:
    assert says("one-queue-for-each-team", namespace("kube-public"), configuration("team")) == []


def test_a_queue_without_selector_takes_no_jobs() -> None:
    queue = having(cluster_queue("team"), ("spec", "namespaceSelector"), None)
    assert says("queue-takes-its-team", queue, local_queue("team"), namespace("team"))
    open_to_all = having(cluster_queue("team"), ("spec", "namespaceSelector"), {})
    assert says("queue-takes-its-team", open_to_all, local_queue("team"), namespace("team")) == []


def test_a_slice_is_not_counted_by_two_flavors() -> None:
    second = having(flavor("team"), ("metadata", "name"), "second")
    assert says("slice-counted-once", spot_pool("team"), flavor("team"), second) == [
        "expected one flavor with the labels of this slice's nodes, got team, second"
    ]


def test_queued_slices_want_a_check_that_asks_for_them() -> None:
    unchecked = having(cluster_queue("team"), ("spec", "admissionChecksStrategy"), None)
    slices = (flavor("team"), queued_pool("team"))
    assert says("queued-slices-requested", unchecked, *slices) == [
        "expected an admission check on queued flavor 'team', got none"
    ]
    assert says("queued-slices-requested", cluster_queue("team"), *slices) == [
        "expected admission check 'team' in the stack, got none"
    ]
    assert says("queued-slices-requested", unchecked, flavor("team"), spot_pool("team")) == []


def test_borrowing_needs_a_cohort() -> None:
    alone = having(cluster_queue("team"), ("spec", "cohortName"), None)
    assert says("limits-make-sense", alone) == [
        "flavor 'team': expected a cohort to borrow from and lend to, got lendingLimit without one"
    ]


def test_a_plan_that_shows_no_queues_yet_is_not_judged_by_them() -> None:
    empty = [
        declared(f"kubernetes:kueue.x-k8s.io/v1beta2:{kind}", kind, {})
        for kind in ("ClusterQueue", "LocalQueue", "ResourceFlavor")
    ]
    for rule in ("flavor-exists", "quota-within-chips", "chips-given-out"):
        assert says(rule, spot_pool("team"), *empty[:1]) == []
