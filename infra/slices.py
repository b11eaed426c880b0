"""TPU slices as node pools.

Owns one node pool for each slice. A slice is one piece: GKE makes, repairs and deletes its hosts
together, so its pool never scales and every change of its shape replaces it. GKE itself labels the
nodes with accelerator and topology and taints them with `google.com/tpu`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra.accelerators import SliceShape
from infra.cluster import CLOUD_PLATFORM_SCOPE
from infra.flavors import SLICE_GROUP_LABEL
from infra.stack_file import Cloud, SliceGroup

_BOOT_DISK_GB = 100
_PODS_PER_NODE = 32
"""One trainer and GKE's own; the default of 110 would take four times the addresses."""


@dataclass(frozen=True)
class TpuSlicesArgs:
    """The slice groups of a stack, and the cluster they join."""

    cloud: Cloud
    cluster_name: str
    """Begins the names of workload policies, which are shared by the whole project."""
    cluster: pulumi.Input[str]
    node_account: pulumi.Input[str]
    groups: Mapping[str, SliceGroup]


class TpuSlices(pulumi.ComponentResource):
    """All TPU slices of the stack."""

    def __init__(self, name: str, args: TpuSlicesArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tpu-multislice:infra:TpuSlices", name, None, opts)
        for group_name, group in args.groups.items():
            placement = self._placement(name, group_name, args)
            for index in range(group.count):
                gcp.container.NodePool(
                    f"{name}-{group_name}-{index}",
                    _pool_args(f"{group_name}-{index}", group_name, placement, args),
                    # GKE takes a changed topology or machine type for an update and drops it, and a
                    # slice's name and capacity are free again only when the old one is gone.
                    opts=pulumi.ResourceOptions(
                        parent=self,
                        replace_on_changes=["placementPolicy.tpuTopology", "nodeConfig.machineType"],
                        delete_before_replace=True,
                    ),
                )
        self.register_outputs({})

    def _placement(
        self, name: str, group_name: str, args: TpuSlicesArgs
    ) -> gcp.container.NodePoolPlacementPolicyArgs | None:
        """How the hosts of a slice are wired together; a single host needs no such policy."""
        shape = args.groups[group_name].shape
        if not shape.multi_host:
            return None
        if not shape.workload_policy_required:
            return gcp.container.NodePoolPlacementPolicyArgs(type="COMPACT", tpu_topology=shape.topology)
        policy = gcp.compute.ResourcePolicy(
            f"{name}-{group_name}",
            # The topology is part of the name: a policy cannot change while pools use it.
            name=f"{args.cluster_name}-{group_name}-{shape.topology}",
            region=args.cloud.region,
            workload_policy=gcp.compute.ResourcePolicyWorkloadPolicyArgs(
                type="HIGH_THROUGHPUT", accelerator_topology=shape.topology
            ),
            opts=pulumi.ResourceOptions(parent=self),
        )
        # GKE stores no type beside a policy: any other than the empty one would show as drift.
        return gcp.container.NodePoolPlacementPolicyArgs(type="", policy_name=policy.name, tpu_topology=shape.topology)


def _pool_args(
    pool_name: str,
    group_name: str,
    placement: gcp.container.NodePoolPlacementPolicyArgs | None,
    args: TpuSlicesArgs,
) -> gcp.container.NodePoolArgs:
    container = gcp.container
    group = args.groups[group_name]
    return container.NodePoolArgs(
        name=pool_name,
        cluster=args.cluster,
        location=args.cloud.region,
        node_locations=[args.cloud.zone],
        node_count=group.shape.hosts,
        max_pods_per_node=_PODS_PER_NODE,
        placement_policy=placement,
        management=container.NodePoolManagementArgs(auto_repair=True, auto_upgrade=True),
        # An upgrade recreates the whole slice: never while the version is supported.
        maintenance_policies=[
            container.NodePoolMaintenancePolicyArgs(
                exclusion_until_end_of_supports=[
                    container.NodePoolMaintenancePolicyExclusionUntilEndOfSupportArgs(enabled=True)
                ]
            )
        ],
        upgrade_settings=container.NodePoolUpgradeSettingsArgs(strategy="SURGE", max_surge=0, max_unavailable=1),
        network_config=container.NodePoolNetworkConfigArgs(enable_private_nodes=True),
        node_config=_node_config(group_name, group, group.shape, args.node_account),
    )


def _node_config(
    group_name: str, group: SliceGroup, shape: SliceShape, node_account: pulumi.Input[str]
) -> gcp.container.NodePoolNodeConfigArgs:
    container = gcp.container
    return container.NodePoolNodeConfigArgs(
        machine_type=shape.machine_type,
        spot=group.capacity == "spot",
        reservation_affinity=container.NodePoolNodeConfigReservationAffinityArgs(
            consume_reservation_type="NO_RESERVATION"
        ),
        boot_disk=container.NodePoolNodeConfigBootDiskArgs(disk_type=shape.boot_disk_types[0], size_gb=_BOOT_DISK_GB),
        labels={SLICE_GROUP_LABEL: group_name},
        service_account=node_account,
        oauth_scopes=[CLOUD_PLATFORM_SCOPE],
        workload_metadata_config=container.NodePoolNodeConfigWorkloadMetadataConfigArgs(mode="GKE_METADATA"),
        gvnic=container.NodePoolNodeConfigGvnicArgs(enabled=True),
    )
