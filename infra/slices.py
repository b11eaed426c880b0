"""TPU slices as node pools.

Owns one node pool for each slice. A slice is one piece: GKE makes, repairs and deletes its hosts
together, so its pool has all of them or, where capacity comes on request, none; every change of its
shape replaces it. GKE itself labels the nodes with accelerator and topology and taints them with
`google.com/tpu`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra.capacity import Capacity, FlexStart, Queued, Reservation, Spot
from infra.cluster import CLOUD_PLATFORM_SCOPE
from infra.flavors import declared_labels
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
                    pool_args(f"{group_name}-{index}", group_name, placement, args),
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


def pool_args(
    pool_name: str,
    group_name: str,
    placement: gcp.container.NodePoolPlacementPolicyArgs | None,
    args: TpuSlicesArgs,
) -> gcp.container.NodePoolArgs:
    """The node pool of one slice."""
    container = gcp.container
    group = args.groups[group_name]
    on_request = isinstance(group.capacity, FlexStart | Queued)
    return container.NodePoolArgs(
        name=pool_name,
        cluster=args.cluster,
        location=args.cloud.region,
        node_locations=[args.cloud.zone],
        node_count=None if on_request else group.shape.hosts,
        autoscaling=_all_or_none(group.shape.hosts) if on_request else None,
        queued_provisioning=container.NodePoolQueuedProvisioningArgs(enabled=True)
        if isinstance(group.capacity, Queued)
        else None,
        max_pods_per_node=_PODS_PER_NODE,
        placement_policy=placement,
        # GKE wants flex-start nodes without repair: their end is part of the bargain.
        management=container.NodePoolManagementArgs(auto_repair=not on_request, auto_upgrade=True),
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
        node_config=_node_config(group_name, group, args),
    )


def _all_or_none(hosts: int) -> gcp.container.NodePoolAutoscalingArgs:
    """Limits per zone: GKE compares a slice's hosts with those alone."""
    return gcp.container.NodePoolAutoscalingArgs(min_node_count=0, max_node_count=hosts, location_policy="ANY")


def _node_config(group_name: str, group: SliceGroup, args: TpuSlicesArgs) -> gcp.container.NodePoolNodeConfigArgs:
    container = gcp.container
    shape, capacity = group.shape, group.capacity
    on_request = isinstance(capacity, FlexStart | Queued)
    return container.NodePoolNodeConfigArgs(
        machine_type=shape.machine_type,
        spot=isinstance(capacity, Spot),
        flex_start=True if on_request else None,
        max_run_duration=f"{capacity.max_run_seconds}s" if on_request else None,
        reservation_affinity=_reservation_affinity(capacity, args.cloud.project),
        boot_disk=container.NodePoolNodeConfigBootDiskArgs(disk_type=shape.boot_disk_types[0], size_gb=_BOOT_DISK_GB),
        labels=declared_labels(group_name, group),
        service_account=args.node_account,
        oauth_scopes=[CLOUD_PLATFORM_SCOPE],
        workload_metadata_config=container.NodePoolNodeConfigWorkloadMetadataConfigArgs(mode="GKE_METADATA"),
        shielded_instance_config=container.NodePoolNodeConfigShieldedInstanceConfigArgs(
            enable_secure_boot=True, enable_integrity_monitoring=True
        ),
        gvnic=container.NodePoolNodeConfigGvnicArgs(enabled=True),
        # The trainer starts before its image is there as a whole.
        gcfs_config=container.NodePoolNodeConfigGcfsConfigArgs(enabled=True),
    )


def _reservation_affinity(capacity: Capacity, project: str) -> gcp.container.NodePoolNodeConfigReservationAffinityArgs:
    if not isinstance(capacity, Reservation):
        return gcp.container.NodePoolNodeConfigReservationAffinityArgs(consume_reservation_type="NO_RESERVATION")
    return gcp.container.NodePoolNodeConfigReservationAffinityArgs(
        consume_reservation_type="SPECIFIC_RESERVATION",
        key="compute.googleapis.com/reservation-name",
        values=[capacity.resource(project)],
    )
