"""Plans that keep and break the rules of `policy.rules.tpu_shape`."""

from policy.resources import NETWORK, WORKLOAD_POLICY
from policy.rule import Declared
from tests.policy.example import Example, declared
from tests.policy.examples.plan import (
    JOB,
    POD,
    alone,
    among,
    cluster,
    flex_start_pool,
    having,
    job_set,
    on_demand_pool,
    queued_pool,
    reserved_pool,
    spot_pool,
    without_option,
)

_TWO_ZONES = ["us-east5-a", "us-east5-b"]


def _network(name: str) -> Declared:
    return declared(NETWORK, name, {"name": name, "mtu": 8896})


def _workload_policy(name: str) -> Declared:
    workload = {"type": "HIGH_THROUGHPUT", "acceleratorTopology": "2x2x2"}
    return declared(WORKLOAD_POLICY, name, {"name": name, "region": "us-east5", "workloadPolicy": workload})


def _ironwood(name: str) -> Declared:
    """A 7x slice of two hosts."""
    placement = {"type": "", "policyName": name, "tpuTopology": "2x2x2"}
    pool = having(having(spot_pool(name), ("placementPolicy",), placement), ("nodeCount",), 2)
    return having(pool, ("nodeConfig", "machineType"), "tpu7x-standard-4t")


EXAMPLES: dict[str, Example] = {
    **alone("slice-offered", spot_pool, ("placementPolicy", "tpuTopology"), "4x5", "the nearest are 4x4"),
    **alone("slice-placement", spot_pool, ("placementPolicy", "type"), "", "COMPACT for 4 hosts, got ''"),
    **among(
        "workload-policy-topology",
        (_workload_policy, _ironwood),
        ("workloadPolicy", "acceleratorTopology"),
        "2x2x4",
        "to be of 2x2x2, got '2x2x4'",
    ),
    **alone("slice-hosts", spot_pool, ("nodeCount",), 3, "expected nodeCount 4, the hosts of a 4x4 slice, got 3"),
    **alone("slice-zone", spot_pool, ("nodeLocations",), _TWO_ZONES, "one zone in nodeLocations, got us-east5-a"),
    "slice-upgrade": Example(
        (spot_pool("kept"), flex_start_pool("on-request")),
        (
            having(spot_pool("kept"), ("upgradeSettings", "maxSurge"), 1),
            having(flex_start_pool("on-request"), ("upgradeSettings",), {"strategy": "SURGE"}),
        ),
        "expected no upgradeSettings on flex-start",
    ),
    **without_option("slice-deleted-first", spot_pool, "delete_before_replace", "the option deleteBeforeReplace"),
    **alone(
        "slice-labels",
        spot_pool,
        ("nodeConfig", "labels", "cloud.google.com/gke-tpu-topology"),
        "2x4",
        "expected node label cloud.google.com/gke-tpu-topology=4x4",
    ),
    **alone("slice-boot-disk", spot_pool, ("nodeConfig", "bootDisk", "diskType"), "pd-ssd", "got pd-ssd"),
    **alone("slice-features", spot_pool, ("nodeConfig", "fastSocket"), {"enabled": True}, "got fastSocket"),
    **alone("slice-interface", spot_pool, ("nodeConfig", "gvnic"), None, "expected gvnic to be enabled"),
    **alone(
        "second-network",
        spot_pool,
        ("networkConfig", "additionalNodeNetworkConfigs"),
        [{"network": name, "subnetwork": name} for name in ("second", "third", "fourth")],
        "at most the 2 further interfaces of ct6e-standard-4t, got 3",
    ),
    **among(
        "several-networks",
        (cluster, spot_pool),
        ("enableMultiNetworking",),
        False,
        "enableMultiNetworking for the second network of several-networks",
    ),
    **alone("jumbo-frames", _network, ("mtu",), None, "expected mtu 8896, got the default of 1460"),
    **alone("flex-start-pool", flex_start_pool, ("nodeConfig", "maxRunDuration"), "60s", "got '60s'"),
    **alone("queued-pool", queued_pool, ("nodeConfig", "labels"), {}, "gke-queued=true, which GKE does not set"),
    **alone("reservation-named", reserved_pool, ("nodeConfig", "reservationAffinity", "values"), [], "got 0"),
    **alone(
        "one-source-of-chips",
        on_demand_pool,
        ("nodeConfig", "reservationAffinity", "consumeReservationType"),
        "ANY_RESERVATION",
        "expected NO_RESERVATION for a source of chips",
    ),
    **among("job-selects-slices", (job_set, spot_pool), (*POD, "nodeSelector", "slice-group"), "no", "got no pool"),
    **among("job-slices", (job_set, spot_pool), ("spec", "replicatedJobs", 0, "replicas"), 2, "match, 1, got 2"),
    **among("job-hosts", (job_set, spot_pool), (*JOB, "parallelism"), 8, "of 4, the hosts of a slice, got (8, 4)"),
    **among(
        "job-chips",
        (job_set, spot_pool),
        (*POD, "containers", 0, "resources"),
        {"limits": {"google.com/tpu": "1"}},
        "google.com/tpu 4, all chips of a host, got 1",
    ),
    **among(
        "job-one-pool-for-a-slice",
        (job_set, spot_pool),
        ("metadata", "annotations"),
        None,
        "to be kept in one node pool, got nothing",
    ),
}
