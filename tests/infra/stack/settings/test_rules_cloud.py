"""Rules of place and slices."""

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from infra.stack.settings.read import parse
from infra.stack.settings.rules_cloud import narrowest_prefix, pod_addresses
from tests.infra.recording import Values, scale_values, stack_values
from tests.infra.spoiling import edited, errors_of

PRIVATE = "a part of one of the private blocks 10.0.0.0/8, 172.16.0.0/12"
_NODES, _PODS, _SERVICES, _SECOND = "network.nodes", "network.pods", "network.services", "network.second_nodes"
_GROUP, _ZONES = "slices.trillium", "us-east5-a, us-east5-b, us-east5-c, got"
_ON_SECOND = {f"{_GROUP}.second_network": True, "job.host_network": True}
_WINDOW = {"start": "2026-01-03T02:00:00Z", "end": "2026-01-02T02:00:00Z", "recurrence": "FREQ=WEEKLY;BYDAY=SA"}
_REFUSED: list[tuple[Values, str, str]] = [
    ({_NODES: "10.0.0.1/18"}, _NODES, "whose first address is its network, got '10.0.0.1/18'"),
    ({_NODES: "10.0.0.0/30"}, _NODES, "a range from /29 to /8, the sizes that GKE accepts, got 10.0.0.0/30"),
    ({_PODS: "10.16.0.0/22"}, _PODS, "a range from /21 to /9"),
    ({_SERVICES: "10.16.0.0/15"}, _SERVICES, "a range from /27 to /16"),
    ({_PODS: "8.0.0.0/12"}, _PODS, PRIVATE),
    ({_SERVICES: "10.0.16.0/20"}, _SERVICES, "no address with network.nodes (10.0.0.0/18), got 10.0.16.0/20; move"),
    (
        {_NODES: "10.0.0.0/28", f"{_GROUP}.count": 5},
        _NODES,
        "17 addresses: 10 TPU hosts, 1 system nodes and 1 more in an upgrade and 5 of Google's own,"
        " got the 16 of 10.0.0.0/28; write a /27 or wider, or lower the count",
    ),
    (
        {_PODS: "10.16.0.0/21", f"{_GROUP}.count": 13},
        _PODS,
        "2176 addresses: blocks for pods of 26 TPU hosts, 1 system nodes and 1 more in an upgrade,"
        " got the 2048 of 10.16.0.0/21; write a /20 or wider",
    ),
    (
        {_SECOND: "10.2.0.0/29", f"{_GROUP}.count": 3} | _ON_SECOND,
        _SECOND,
        "10 addresses: 6 TPU hosts and 4 of Google's own, got the 8 of 10.2.0.0/29; write a /28 or wider",
    ),
    ({_SECOND: "10.0.0.0/24"} | _ON_SECOND, _SECOND, "no address with network.nodes (10.0.0.0/18)"),
    *(
        ({f"{_GROUP}.zone": zone}, f"{_GROUP}.zone", f"{_ZONES} '{zone}'; change slices.trillium.zone or cloud.region")
        for zone in ("us-east1-b", "us-east5", "us-east5-", "b")
    ),
    (
        {"cluster.authorized_networks": {"office": "203.0.113.0/24", "home": "0.0.0.0/0"}},
        "cluster.authorized_networks.home",
        "0.0.0.0/0, which is every address",
    ),
    (
        {"cluster.encryption_key": "projects/p/locations/global/keyRings/r/cryptoKeys/k"},
        "cluster.encryption_key",
        "expected a key in us-east5",
    ),
    ({"cluster.maintenance": _WINDOW}, "cluster.maintenance", "a window that ends after it starts"),
    ({"cluster.maintenance": _WINDOW | {"recurrence": "weekly"}}, "cluster.maintenance.recurrence", ""),
    (
        {f"{_GROUP}.generation": "v5e"} | _ON_SECOND,
        f"{_GROUP}.second_network",
        "ct6e-standard-1t, ct6e-standard-4t, ct6e-standard-8t, tpu7x-standard-4t, got ct5lp-hightpu-4t",
    ),
    (
        {f"{_GROUP}.image_disk": "trainer-images"},
        f"{_GROUP}.image_disk",
        "projects/PROJECT/global/images/IMAGE",
    ),
]


@pytest.mark.parametrize(("changes", "path", "words"), _REFUSED, ids=[f"{row[1]}-{row[2][:12]}" for row in _REFUSED])
def test_a_place_that_does_not_do_is_refused_with_one_that_does(
    values: Values, changes: Values, path: str, words: str
) -> None:
    errors = errors_of(edited(values, changes))
    assert list(errors) == [path]
    assert words in errors[path]


@hypothesis_settings(deadline=None, max_examples=25)
@given(st.integers(2, 2000), st.integers(1, 20))
def test_a_stack_is_accepted_with_the_prefixes_that_its_faults_name(slices: int, system_nodes: int) -> None:
    values = stack_values("dev")
    values["slices"]["trillium"]["count"] = slices
    values["cluster"] |= {"system_nodes": system_nodes, "system_machine_type": "e2-standard-32"}
    nodes = narrowest_prefix(slices * 2 + system_nodes + 6)
    pods = narrowest_prefix(pod_addresses(slices * 2, system_nodes + 1))
    values["network"] = {"nodes": f"10.0.0.0/{nodes}", "pods": f"10.16.0.0/{min(pods, 21)}"}
    assert errors_of(values) == {}
    values["network"] = {"nodes": f"10.0.0.0/{nodes + 1}", "pods": f"10.16.0.0/{pods + 1}"}
    faults = errors_of(values)
    assert f"a /{nodes} or wider" in faults["network.nodes"]
    assert "network.pods" in faults


def test_a_second_network_needs_a_job_that_sees_it(values: Values) -> None:
    values["slices"]["trillium"]["second_network"] = True
    assert "got job tiny without host_network; write job.host_network: true" in str(errors_of(values))
    values["slices"]["other"] = values["slices"]["trillium"] | {"second_network": False}
    values["job"]["slices"]["group"] = "other"
    values["teams"]["research"]["quota"]["other"] = 16
    assert parse(values).second_network


@pytest.mark.parametrize(
    ("stack", "machine_type", "nodes", "needs"),
    [
        ("scale", "e2-standard-4", 3, "at least 5 vCPUs and 9.0 GiB"),
        ("scale", "e2-standard-8", 3, ""),
        ("scale", "e2-standard-8", 1, "4096 TPU hosts, got e2-standard-8"),
        ("scale", "e2-highcpu-8", 3, "GiB"),
        ("scale", "c3-standard-4-lssd", 3, "vCPUs"),
        ("scale", "m1-megamem-96", 1, ""),
        ("dev", "e2-medium", 1, "vCPUs"),
        ("dev", "n2d-custom-4-8192", 1, ""),
        ("dev", "n2-custom-2-2048", 1, "GiB"),
    ],
)
def test_a_machine_is_refused_where_the_controllers_would_take_more_than_half_of_it(
    stack: str, machine_type: str, nodes: int, needs: str
) -> None:
    """Nothing is known about a machine whose name does not contain its size."""
    values = scale_values() if stack == "scale" else stack_values(stack)
    changes = {"cluster.system_machine_type": machine_type, "cluster.system_nodes": nodes}
    found = errors_of(edited(values, changes)).get("cluster.system_machine_type", "")
    assert (bool(found), needs in found) == (bool(needs), True)
