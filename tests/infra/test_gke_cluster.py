"""The cluster and its networks."""

from typing import Any

from tests.infra.recording import Values, run_program

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


OFFICE = "203.0.113.0/24"
LABELLED = {
    "gcp:container/cluster:Cluster": "resourceLabels",
    "gcp:storage/bucket:Bucket": "labels",
    "gcp:artifactregistry/repository:Repository": "labels",
}
POOL = "gcp:container/nodePool:NodePool"


def cluster_of(values: Values) -> Any:
    return run_program(values).named(*CLUSTER).inputs


def test_the_dns_endpoint_is_the_only_way_in_until_networks_are_named(values: Values) -> None:
    closed = cluster_of(values)
    assert closed["controlPlaneEndpointsConfig"]["ipEndpointsConfig"] == {"enabled": False}
    assert "masterAuthorizedNetworksConfig" not in closed
    values["cluster"]["authorized_networks"] = {"office": OFFICE}
    opened = cluster_of(values)
    assert opened["controlPlaneEndpointsConfig"]["ipEndpointsConfig"] == {"enabled": True}
    assert opened["controlPlaneEndpointsConfig"]["dnsEndpointConfig"] == {"allowExternalTraffic": True}
    assert opened["masterAuthorizedNetworksConfig"] == {
        "cidrBlocks": [{"displayName": "office", "cidrBlock": OFFICE}],
        "gcpPublicCidrsAccessEnabled": False,
    }


def test_the_clusters_secrets_are_encrypted_with_the_key_that_is_named(values: Values) -> None:
    key = "projects/p/locations/us-east5/keyRings/r/cryptoKeys/k"
    values["cluster"]["encryption_key"] = key
    assert cluster_of(values)["databaseEncryption"] == {"state": "ENCRYPTED", "keyName": key}


def test_maintenance_keeps_to_its_window(values: Values) -> None:
    start, end, recurrence = "2026-01-03T02:00:00Z", "2026-01-03T08:00:00Z", "FREQ=WEEKLY;BYDAY=SA,SU"
    values["cluster"]["maintenance"] = {"start": start, "end": end, "recurrence": recurrence}
    window = {"startTime": start, "endTime": end, "recurrence": recurrence}
    assert cluster_of(values)["maintenancePolicy"] == {"recurringWindow": window}


def test_buckets_can_be_mounted_when_data_sets_are(values: Values) -> None:
    values["datasets"] = {"bucket": "shared-text", "mount": True}
    assert cluster_of(values)["addonsConfig"]["gcsFuseCsiDriverConfig"] == {"enabled": True}


def test_what_is_billed_has_the_stacks_labels(values: Values) -> None:
    own = {"managed-by": "tpu-multislice"}
    values["labels"] = {"cost-center": "research"}
    recording = run_program(values)
    for kind, key in LABELLED.items():
        assert [found.inputs[key] for found in recording.of_type(kind)] == [own | values["labels"]]
    pools: list[Any] = [pool.inputs for pool in recording.of_type(POOL)]
    assert [pool["nodeConfig"]["resourceLabels"] for pool in pools] == [own | values["labels"]] * 3


def test_gke_makes_no_firewall_rules_that_would_outlive_the_cluster(values: Values) -> None:
    cluster = cluster_of(values)
    assert cluster["disableL4LbFirewallReconciliation"]
    assert cluster["addonsConfig"]["httpLoadBalancing"] == {"disabled": True}
