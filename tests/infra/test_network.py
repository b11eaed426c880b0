"""Networks: their ranges, their frames, and who may talk to whom."""

from typing import Any

from tests.infra.recording import Recording, Values, run_program

NETWORK = "gcp:compute/network:Network"
SUBNET = "gcp:compute/subnetwork:Subnetwork"
FIREWALL = "gcp:compute/firewall:Firewall"
CLUSTER = ("gcp:container/cluster:Cluster", "cluster")


def test_the_stack_files_ranges_are_those_of_the_subnet_and_of_what_may_enter(values: Values) -> None:
    values["network"] = {"nodes": "10.64.0.0/20", "pods": "172.16.0.0/14", "services": "192.168.0.0/22"}
    recording = run_program(values)
    subnet: Any = recording.named(SUBNET, "network-nodes").inputs
    (rule,) = recording.of_type(FIREWALL)
    assert subnet["ipCidrRange"] == "10.64.0.0/20"
    assert {entry["rangeName"]: entry["ipCidrRange"] for entry in subnet["secondaryIpRanges"]} == {
        "pods": "172.16.0.0/14",
        "services": "192.168.0.0/22",
    }
    # Hosts and pods reach each other; the control plane's address is one of the nodes' range.
    assert rule.inputs["sourceRanges"] == ["10.64.0.0/20", "172.16.0.0/14"]


def with_second(values: Values) -> Recording:
    values["slices"]["trillium"]["second_network"] = True
    values["job"]["host_network"] = True
    return run_program(values)


def test_a_second_network_is_declared_when_a_group_wants_it(values: Values) -> None:
    assert [network.name for network in run_program(values).of_type(NETWORK)] == ["network"]
    recording = with_second(values)
    second: Any = recording.named(NETWORK, "network-second").inputs
    assert (second["name"], second["mtu"]) == ("multislice-dev-second", 8896)
    subnet: Any = recording.named(SUBNET, "network-second-nodes").inputs
    rule: Any = recording.named(FIREWALL, "network-second-inside").inputs
    assert [subnet["ipCidrRange"]] == rule["sourceRanges"] == ["10.2.0.0/18"]
    assert subnet["network"] == rule["network"] == "network-second-id"
    assert {entry["protocol"] for entry in rule["allows"]} == {"tcp", "udp", "icmp"}


def test_the_cluster_takes_several_networks_only_when_there_are(values: Values) -> None:
    assert run_program(values).named(*CLUSTER).inputs["enableMultiNetworking"] is False
    assert with_second(values).named(*CLUSTER).inputs["enableMultiNetworking"] is True


def test_every_network_takes_jumbo_frames(values: Values) -> None:
    assert {network.inputs["mtu"] for network in with_second(values).of_type(NETWORK)} == {8896}
