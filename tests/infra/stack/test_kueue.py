"""Flavors and queues of Kueue."""

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from infra.stack.kueue import flavor_name, resource_flavor
from infra.stack.names import QUEUE_LABEL
from infra.stack.settings.read import parse
from infra.stack.settings.schema import Placement, SliceGroup
from tests.infra.legal_values import legal_values
from tests.infra.one_job import only_group
from tests.infra.recording import Values, run_program

KUEUE = "kubernetes:kueue.x-k8s.io/v1beta2"
_FLAVORS = st.builds(
    lambda values, placement: (*next(iter(parse(values).slices.items())), placement),
    legal_values(),
    st.sampled_from(get_args(Placement)),
)


def _fixed(name: str, group: SliceGroup, placement: Placement) -> tuple[object, object]:
    """What Kueue 0.19 does not let change in a flavor that has a topology."""
    spec: Any = resource_flavor(name, group, placement)["spec"]
    return spec["nodeLabels"], spec.get("topologyName")


@pytest.mark.costs(cpu_seconds=8)
@hypothesis_settings(deadline=None)
@given(_FLAVORS, _FLAVORS)
def test_flavors_that_cannot_become_each_other_have_names_of_their_own(
    one: tuple[str, SliceGroup, Placement], other: tuple[str, SliceGroup, Placement]
) -> None:
    assert len(flavor_name(*one)) <= 63
    assert flavor_name(*one) != flavor_name(*other) or _fixed(*one) == _fixed(*other)


def test_a_group_whose_name_begins_like_a_capacity_shares_no_flavor_with_another(values: Values) -> None:
    spot, on_demand = (
        only_group(parse(values | {"slices": {"trillium": values["slices"]["trillium"] | {"capacity": capacity}}}))
        for capacity in ("spot", "on-demand")
    )
    names = {
        flavor_name(name, group, placement)
        for name in ("a", "tas-a", "spot-a", "on-demand-a", "tas-spot-a")
        for group in (spot, on_demand)
        for placement in ("exclusive-topology", "topology-aware")
    }
    assert len(names) == 20


def test_topology_aware_flavors_know_the_way_from_host_to_slice(values: Values) -> None:
    recording = run_program(values | {"scheduling": {"placement": "topology-aware"}})
    topology = recording.named(f"{KUEUE}:Topology", "topology")
    flavor = recording.named(f"{KUEUE}:ResourceFlavor", "flavor-trillium")
    assert flavor.inputs["spec"]["topologyName"] == topology.inputs["metadata"]["name"]
    assert topology.urn in recording.closure(flavor)
    assert [level["nodeLabel"] for level in topology.inputs["spec"]["levels"]] == [
        "cloud.google.com/gke-nodepool",
        "kubernetes.io/hostname",
    ]
    assert not run_program(values).of_type(f"{KUEUE}:Topology")


def test_a_queue_that_is_closed_is_not_awaited_to_become_active(values: Values) -> None:
    values["teams"]["research"]["admission"] = "hold"
    recording = run_program(values)
    queue = recording.named(f"{KUEUE}:ClusterQueue", "quota-research").inputs
    local = recording.named(f"{KUEUE}:LocalQueue", "queue-research").inputs
    assert queue["spec"]["stopPolicy"] == "Hold"
    awaiting = [thing["metadata"]["annotations"]["pulumi.com/waitFor"] for thing in (queue, local)]
    assert awaiting == ["condition=Active=False"] * 2
    assert "stopPolicy" not in local["spec"]


def test_pausing_a_job_stops_its_own_queue_and_leaves_its_job_set_as_it_is(values: Values) -> None:
    before = run_program(values)
    values["job"]["paused"] = True
    after = run_program(values)
    queue = after.named(f"{KUEUE}:LocalQueue", "queue-research.tiny").inputs
    assert queue["spec"] == {"clusterQueue": "research", "stopPolicy": "HoldAndDrain"}
    assert queue["metadata"]["name"] == "research.tiny"
    assert queue["metadata"]["annotations"]["pulumi.com/waitFor"] == "condition=Active=False"
    job = ("kubernetes:jobset.x-k8s.io/v1alpha2:JobSet", "job-tiny")
    assert after.named(*job).inputs == before.named(*job).inputs
    assert after.named(*job).inputs["metadata"]["labels"][QUEUE_LABEL] == "research.tiny"
