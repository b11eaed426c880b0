import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.cluster.kubernetes import Json
from infra.stack.tpu import shape_of
from sandbox.providers.node_pools import Pool, allocatable, is_decided, nodes, pool_of, require_valid, zones
from sandbox.providers.plugin import Refusal
from sandbox.providers.values import UNKNOWN, merge
from sandbox.site import NODE_LABEL, Site

SITE = Site(Path("/nowhere"), 64)
TPU = Pool(
    cluster="train",
    name="slice-0",
    machine_type="ct6e-standard-4t",
    zones=("us-east5-a",),
    nodes_per_zone=4,
    version="1.36.2-gke.0",
    shape=shape_of("ct6e-standard-4t", "4x4"),
    labels={"team": "a"},
    taints=(("google.com/tpu", "present", "NO_SCHEDULE"),),
    spot=True,
    flex_start=False,
)
CPU = replace(TPU, name="system", machine_type="n2-standard-8", shape=None, labels={}, taints=(), spot=False)


def test_a_tpu_node_carries_the_labels_of_gke_offers_its_chips_and_names_its_kubelet() -> None:
    node = nodes(TPU, SITE)[0]
    labels, status = node["metadata"]["labels"], node["status"]
    expected = {
        "team": "a",
        NODE_LABEL: "true",
        "cloud.google.com/gke-nodepool": "slice-0",
        "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
        "cloud.google.com/gke-tpu-topology": "4x4",
        "cloud.google.com/gke-accelerator-count": "4",
        "cloud.google.com/gke-spot": "true",
        "kubernetes.io/hostname": node["metadata"]["name"],
        "node.kubernetes.io/instance-type": "ct6e-standard-4t",
        "topology.kubernetes.io/region": "us-east5",
        "topology.kubernetes.io/zone": "us-east5-a",
    }
    assert expected.items() <= labels.items()
    assert status["allocatable"]["google.com/tpu"] == "4"
    assert status["addresses"][0] == {"type": "InternalIP", "address": SITE.address}
    assert status["daemonEndpoints"]["kubeletEndpoint"]["Port"] == SITE.kubelet_port


def test_a_tpu_node_has_its_taint_once_and_a_cpu_node_nothing_of_a_tpu() -> None:
    taint = {"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}
    for pool in (TPU, replace(TPU, taints=())):
        assert nodes(pool, SITE)[0]["spec"]["taints"] == [taint]
    node = nodes(CPU, SITE)[0]
    assert node["spec"]["taints"] == []
    assert "google.com/tpu" not in node["status"]["allocatable"]
    assert not [label for label in node["metadata"]["labels"] if "tpu-" in label and label != NODE_LABEL]


def test_every_node_has_a_name_of_its_own_and_keeps_it() -> None:
    two_zones = replace(TPU, zones=("us-east5-a", "us-east5-b"), nodes_per_zone=2)
    names = [node["metadata"]["name"] for node in nodes(two_zones, SITE)]
    assert len(set(names)) == 4
    assert names == [node["metadata"]["name"] for node in nodes(two_zones, SITE)]
    other = nodes(replace(TPU, name="slice-1"), SITE)[0]["metadata"]["name"]
    assert other not in names
    assert all(len(name) <= 63 for name in names)


@pytest.mark.parametrize(
    ("machine_type", "cores", "memory_gib"),
    [
        ("ct5lp-hightpu-1t", 23.87, 42.7),
        ("ct5p-hightpu-4t", 207.41, 425),
        ("ct6e-standard-4t", 179.48, 687),
        ("tpu7x-standard-4t", 223.37, 918.9),
    ],
)
def test_allocatable_follows_gkes_reservations(machine_type: str, cores: float, memory_gib: float) -> None:
    millicores, memory_mib = allocatable(machine_type)
    assert millicores / 1000 == pytest.approx(cores, abs=0.01)
    assert memory_mib / 1024 == pytest.approx(memory_gib, rel=0.005)


CLUSTER = {"name": "train", "location": "us-east5", "masterVersion": "1.36.2-gke.0"}
SLICE = {
    "name": "slice-0",
    "cluster": "train",
    "nodeLocations": ["us-east5-a"],
    "nodeCount": 4,
    "nodeConfig": {"machineType": "ct6e-standard-4t"},
    "placementPolicy": {"type": "COMPACT", "tpuTopology": "4x4"},
}
IRONWOOD = {**SLICE, "nodeConfig": {"machineType": "tpu7x-standard-4t"}, "nodeCount": 4}
IRONWOOD_PLACEMENT = {"type": "", "policyName": "p", "tpuTopology": "2x2x4"}
OTHER_POLICY = {"name": "p", "workloadPolicy": {"acceleratorTopology": "2x2x2"}}
POLICY = {"name": "p", "workloadPolicy": {"type": "HIGH_THROUGHPUT", "acceleratorTopology": "2x2x4"}}


FLEX: dict[str, Any] = {
    **{key: item for key, item in SLICE.items() if key != "nodeCount"},
    "autoscaling": {"minNodeCount": 0, "maxNodeCount": 4, "locationPolicy": "ANY"},
    "nodeConfig": {
        "machineType": "ct6e-standard-4t",
        "flexStart": True,
        "maxRunDuration": "14400s",
        "reservationAffinity": {"consumeReservationType": "NO_RESERVATION"},
    },
    "management": {"autoRepair": False},
}
RESERVATION = {
    "consumeReservationType": "SPECIFIC_RESERVATION",
    "key": "compute.googleapis.com/reservation-name",
    "values": ["chips"],
}


BARE = {key: item for key, item in SLICE.items() if key != "placementPolicy"}
FLEXIBLE = {key: item for key, item in SLICE.items() if key != "nodeCount"}
TWO_ZONES = SLICE | {"nodeCount": 2, "nodeLocations": ["us-east5-a", "us-east5-b"]}
OTHER_ZONE = SLICE | {"nodeLocations": ["us-east5-c"]}
COMPACT = {"type": "COMPACT", "tpuTopology": "2x2x4"}
ZONAL = CLUSTER | {"location": "us-east5-a"}
AUTOSCALING = {"autoscaling": {"minNodeCount": 0, "maxNodeCount": 4}}
RESERVED = merge(SLICE, {"nodeConfig": {"reservationAffinity": RESERVATION}})
LABELLED = {"nodeConfig": {"machineType": "ct6e-standard-4t", "labels": {"cloud.google.com/gke-tpu-topology": "4x4"}}}


@pytest.mark.parametrize(
    ("properties", "cluster", "policy"),
    [
        pytest.param(SLICE, CLUSTER, None, id="a slice at its gang size"),
        pytest.param(SLICE | {"nodeCount": 0}, CLUSTER, None, id="an empty slice"),
        pytest.param(TWO_ZONES, CLUSTER, None, id="half of the hosts in each of two zones"),
        pytest.param(BARE | {"nodeCount": 3}, CLUSTER, None, id="any number of single hosts"),
        pytest.param(IRONWOOD | {"placementPolicy": IRONWOOD_PLACEMENT}, CLUSTER, POLICY, id="a workload policy"),
        pytest.param(OTHER_ZONE, CLUSTER, None, id="another zone of the region"),
        pytest.param(OTHER_ZONE, ZONAL, None, id="another zone than that of the cluster"),
        pytest.param(FLEXIBLE | AUTOSCALING, CLUSTER, None, id="autoscaling to it"),
        pytest.param(RESERVED, CLUSTER, None, id="one reservation"),
    ],
)
def test_what_gke_accepts_is_accepted(properties: Json, cluster: Json, policy: Json | None) -> None:
    require_valid(properties, cluster, policy)


WRONG_SLICES: list[tuple[Json, str]] = [
    ({"placementPolicy": {"tpuTopology": "3x3"}}, 'Invalid TPU topology "3x3" for machine type "ct6e-standard-4t"'),
    ({"placementPolicy": {"tpuTopology": "2x2"}}, "not supported for single-host TPU slices"),
    ({"placementPolicy": {"type": ""}}, 'needs placement policy type "COMPACT"'),
    ({"nodeConfig": {"machineType": "ct6e-standard-16t"}}, "does not support TPU topology"),
    ({"nodeConfig": {"machineType": "n2-standard-8"}}, "does not support TPU topology"),
    ({"nodeConfig": {"diskType": "pd-balanced"}}, "pd-balanced disk type cannot be used"),
    ({"nodeConfig": {"bootDisk": {"diskType": "pd-ssd"}}}, "pd-ssd disk type cannot be used"),
    ({"nodeConfig": {"flexStart": True}}, "Flex start node pools require autoscaling enabled."),
    ({"queuedProvisioning": {"enabled": True}}, "Queued_provisioning doesn't support TPUs"),
]
WRONG_FLEX_STARTS: list[tuple[Json, str]] = [
    ({"nodeCount": 4}, "Flex start node pools require initial node count to be set to 0."),
    ({"initialNodeCount": 4}, "Flex start node pools require initial node count to be set to 0."),
    ({"autoscaling": {"minNodeCount": 4}}, "require initial node count to be set to 0."),
    ({"autoscaling": {"maxNodeCount": 8}}, "Maximum node count 8 is not a valid size of TPU pod slice"),
    ({"nodeConfig": {"spot": True}}, "neither spot VMs nor reservations"),
    ({"nodeConfig": {"reservationAffinity": RESERVATION}}, "neither spot VMs nor reservations"),
    ({"management": {"autoRepair": True}}, "require node auto-repair to be disabled"),
    ({"nodeConfig": {"maxRunDuration": "599s"}}, 'Invalid max run duration "599s"'),
    ({"nodeConfig": {"maxRunDuration": "604801s"}}, "must be between 600s and 604800s"),
    ({"nodeConfig": {"maxRunDuration": "4h"}}, 'Invalid max run duration "4h"'),
    ({"nodeConfig": {"machineType": "ct5lp-hightpu-4t"}}, "not supported for machine type ct5lp-hightpu-4t"),
]


def reserved(**change: object) -> Json:
    return merge(SLICE, {"nodeConfig": {"reservationAffinity": RESERVATION | change}})


@pytest.mark.parametrize(
    ("properties", "message", "policy"),
    [
        (
            SLICE | {"nodeCount": 8},
            "Google Compute Engine: Invalid value for field 'resource.resizeBy': '8'. Requested invalid target size '8'"
            " for a Managed Instance Group in the gang mode of size '4'. Should be equal to the gang size.",
            None,
        ),
        (TWO_ZONES | {"nodeCount": 4}, "'8'", None),
        (BARE | {"placementPolicy": {"type": "COMPACT"}}, "without a topology", None),
        (BARE | LABELLED, 'needs placement_policy with type "COMPACT" and tpu_topology "4x4"', None),
        (IRONWOOD | {"placementPolicy": COMPACT}, "Use workload policy instead.", None),
        (IRONWOOD | {"placementPolicy": IRONWOOD_PLACEMENT}, "differs", OTHER_POLICY),
        (SLICE | {"nodeLocations": ["us-east1-b"]}, "us-east1-b", None),
        (FLEXIBLE | {"autoscaling": {"totalMaxNodeCount": 4}}, "Maximum node count 0 is not a valid size", None),
        *((reserved(**change), "exactly one value", None) for change in ({"values": ["chips", "more"]}, {"key": ""})),
        *((merge(SLICE, change), message, None) for change, message in WRONG_SLICES),
        *((merge(FLEX, change), message, None) for change, message in WRONG_FLEX_STARTS),
    ],
)
def test_what_gke_refuses_is_refused_in_its_words(properties: Json, message: str, policy: Json | None) -> None:
    with pytest.raises(Refusal, match=re.escape(message)):
        require_valid(properties, CLUSTER, policy)


def test_a_flex_start_slice_is_accepted_and_has_no_nodes() -> None:
    for queued in (False, True):
        properties = FLEX | {"queuedProvisioning": {"enabled": queued}}
        require_valid(properties, CLUSTER, None)
        assert pool_of(properties, CLUSTER, None).nodes_per_zone == 0
    # A pool of a wrong size can still be described.
    assert pool_of(SLICE | {"nodeCount": 3}, CLUSTER, None).nodes_per_zone == 3


def test_a_preview_decides_only_on_what_it_knows() -> None:
    assert is_decided(SLICE, None)
    assert not is_decided(SLICE | {"nodeCount": UNKNOWN}, CLUSTER)
    regional = {key: item for key, item in SLICE.items() if key != "nodeLocations"} | {"location": "us-east5"}
    assert not is_decided(regional, None)


def test_zones_are_the_pools_own_or_those_of_its_region() -> None:
    assert zones(SLICE, CLUSTER) == ("us-east5-a",)
    assert zones({"location": "us-east5-c"}, CLUSTER) == ("us-east5-c",)
    assert zones({}, CLUSTER) == ("us-east5-a", "us-east5-b", "us-east5-c")
