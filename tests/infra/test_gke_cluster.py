"""The cluster and its networks."""

from typing import Any

from tests.infra.recording import Values, run_program

NETWORK = "gcp:compute/network:Network"
SUBNET = "gcp:compute/subnetwork:Subnetwork"
FIREWALL = "gcp:compute/firewall:Firewall"
CLUSTER = ("gcp:container/cluster:Cluster", "cluster")


def test_a_second_network_is_declared_when_a_group_wants_it(values: Values) -> None:
    values["slices"]["trillium"]["second_network"] = values["job"]["host_network"] = True
    recording = run_program(values)
    assert recording.named(*CLUSTER).inputs["enableMultiNetworking"] is True
    second: Any = recording.named(NETWORK, "network-second").inputs
    assert (second["name"], second["mtu"]) == ("multislice-dev-second", 8896)
    subnet: Any = recording.named(SUBNET, "network-second-nodes").inputs
    rule: Any = recording.named(FIREWALL, "network-second-inside").inputs
    assert [subnet["ipCidrRange"]] == rule["sourceRanges"] == ["10.2.0.0/18"]
    assert subnet["network"] == rule["network"] == "network-second-id"
    assert {entry["protocol"] for entry in rule["allows"]} == {"tcp", "udp", "icmp"}


def cluster_of(values: Values) -> Any:
    return run_program(values).named(*CLUSTER).inputs


def test_buckets_can_be_mounted_when_data_sets_are(values: Values) -> None:
    values["datasets"] = {"bucket": "shared-text", "mount": True}
    assert cluster_of(values)["addonsConfig"]["gcsFuseCsiDriverConfig"] == {"enabled": True}
