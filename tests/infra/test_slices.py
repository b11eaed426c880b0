"""Node pools: each kind of slice as GKE wants it, and what the settings of a group become."""

import asyncio
import contextlib

import pulumi_gcp as gcp
import pytest
from pulumi.runtime import rpc

from infra.gke_cluster import ClusterOutputs
from infra.slices import TpuSlicesArgs, pool_args
from infra.stack.pods import node_labels
from infra.stack.settings.read import parse
from infra.stack.settings.schema import SliceGroup
from infra.stack.settings.stack import FleetSpec
from infra.stack.tpu import SliceShape, all_shapes
from sandbox.providers.node_pools import require_valid
from tests.infra.recording import Values, stack_values

CLUSTER = {"name": "dev", "location": "us-east5", "nodeLocations": ["us-east5-b"]}


def _kinds(shape: SliceShape) -> list[object]:
    kept: list[object] = ["on-demand", "spot", {"kind": "reservation", "name": "chips"}]
    on_request = [{"kind": kind, "max_run_hours": 4} for kind in ("flex-start", "queued")]
    return kept + (on_request if shape.flex_start else [])


def _inputs(args: gcp.container.NodePoolArgs) -> Values:
    """Pulumi's arguments as the plugin gets them."""
    # A loop of its own, for runs of the program use the one that is set.
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        return loop.run_until_complete(rpc.serialize_property(args, [], None))


@pytest.mark.parametrize("shape", all_shapes(), ids=lambda shape: f"{shape.machine_type}-{shape.topology}")
def test_gke_accepts_every_slice_of_every_capacity(shape: SliceShape) -> None:
    settings = parse(stack_values("dev"))
    policy = {"workloadPolicy": {"acceleratorTopology": shape.topology}} if shape.workload_policy_required else None
    for capacity in _kinds(shape):
        written = {"generation": shape.generation, "topology": shape.topology, "machine_type": shape.machine_type}
        group = SliceGroup.model_validate(written | {"count": 1, "capacity": capacity})
        spec = FleetSpec(cloud=settings.cloud, slices={"extra": group}, teams={}, bucket="b")
        cluster = ClusterOutputs(name="dev", endpoint="dev.example", node_account="nodes@x")
        args = TpuSlicesArgs(spec, cluster, {"a": "b"})
        pool = _inputs(pool_args("extra-0", "extra", "placed" if policy else None, args))
        require_valid(pool, CLUSTER, policy)
        assert ("placementPolicy" in pool) == shape.multi_host
        hosts = pool.get("nodeCount") or pool["autoscaling"]["maxNodeCount"]
        assert hosts * shape.chips_per_host == shape.chips
        config = pool["nodeConfig"]
        scaled = "autoscaling" in pool
        assert scaled == ("nodeCount" not in pool) == config.get("flexStart", False) == ("maxRunDuration" in config)
        reserved = config["reservationAffinity"]["consumeReservationType"] == "SPECIFIC_RESERVATION"
        assert [config["spot"], scaled, reserved].count(True) <= 1
        assert config["bootDisk"]["diskType"] in shape.boot_disk_types
        assert config["labels"].items() <= node_labels("extra", group).items()
