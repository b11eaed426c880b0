from dataclasses import replace
from pathlib import Path

import pytest

from infra.tpu import shape_of
from sandbox.providers.nodes import Pool, allocatable, nodes
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


def test_a_tpu_node_carries_the_labels_of_gke() -> None:
    node = nodes(TPU, SITE)[0]
    labels = node["metadata"]["labels"]
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


def test_the_tpu_taint_is_there_once_whether_declared_or_not() -> None:
    taint = {"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}
    assert nodes(TPU, SITE)[0]["spec"]["taints"] == [taint]
    assert nodes(replace(TPU, taints=()), SITE)[0]["spec"]["taints"] == [taint]


def test_a_tpu_node_offers_its_chips_and_names_its_kubelet() -> None:
    status = nodes(TPU, SITE)[0]["status"]
    assert status["allocatable"]["google.com/tpu"] == "4"
    assert status["addresses"][0] == {"type": "InternalIP", "address": SITE.address}
    assert status["daemonEndpoints"]["kubeletEndpoint"]["Port"] == SITE.kubelet_port


def test_a_cpu_node_has_nothing_of_a_tpu() -> None:
    node = nodes(CPU, SITE)[0]
    assert "google.com/tpu" not in node["status"]["allocatable"]
    assert not [label for label in node["metadata"]["labels"] if "tpu-" in label and label != NODE_LABEL]
    assert node["spec"]["taints"] == []


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
