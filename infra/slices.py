"""TPU slices as node pools, one for each slice.

A slice is one unit: GKE creates, repairs and deletes its hosts together. So its pool has either all hosts or, if
capacity is created on request, none, and every change of its shape replaces it. GKE labels the nodes with accelerator
and topology and taints them with `google.com/tpu`.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra.cluster import running_jobs
from infra.cluster.kubernetes import UNREACHABLE, ApiServer
from infra.gke_cluster import CLOUD_PLATFORM_SCOPE, ClusterOutputs, SubnetNames
from infra.stack.capacity import Capacity
from infra.stack.command_lines import command_line, replacing
from infra.stack.names import slice_pool
from infra.stack.pods import declared_node_labels
from infra.stack.settings.schema import SLICE_PODS_PER_NODE, SliceGroup
from infra.stack.settings.stack import FleetSpec
from infra.stack.tpu import SliceShape

REPLACED_BY_US = (
    "placementPolicy.tpuTopology",
    "nodeConfig.machineType",
    "nodeConfig.bootDisk.diskType",
    "nodeConfig.bootDisk.sizeGb",
    "nodeLocations",
)
"""Changes for which the provider does not replace a pool. It silently ignores a changed topology, and would apply the
others to running nodes, although a slice has either all of its hosts or none.

The list does not contain the whole `placementPolicy`: with a workload policy GKE stores no `type`, so each `up` would
see a change. The provider also ignores `maintenancePolicies`, but their value never changes.
"""

_CREATE_MINUTES, _CREATE_MINUTES_PER_POOL = 60, 5
"""Maximum duration of the creation of a pool, in minutes. GKE may create the pools of a cluster one after another, and
the provider retries for the same time when a quota is used up."""


class HostsMissingError(Exception):
    """Raised when a slice that an earlier update failed to create still lacks hosts."""


@dataclass(frozen=True)
class TpuSlicesArgs:
    """The slice groups of a fleet, and their cluster."""

    spec: FleetSpec
    cluster: ClusterOutputs
    """Its name is also the prefix of the names of workload policies, which are unique within the project."""
    labels: Mapping[str, str]


class TpuSlices(pulumi.ComponentResource):
    """All TPU slices of the stack."""

    first_queued: pulumi.Resource | None = None

    def __init__(self, name: str, args: TpuSlicesArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tpu-multislice:infra:TpuSlices", name, None, opts)
        pools = sum(group.count for group in args.spec.slices.values())
        create = f"{_CREATE_MINUTES + pools * _CREATE_MINUTES_PER_POOL}m"
        hosts_have_come = _hosts_have_come(f"{name}-have-hosts", args.cluster.endpoint)
        created = {name: group for name, group in args.spec.slices.items() if not group.existing}
        for group_name, group in created.items():
            policy = self._workload_policy(name, group_name, args)
            for index in range(group.count):
                pool = gcp.container.NodePool(
                    f"{name}-{group_name}-{index}",
                    pool_args(slice_pool(group_name, index), group_name, policy, args),
                    # A slice's name and capacity are available again only when the old slice is gone.
                    opts=pulumi.ResourceOptions(
                        parent=self,
                        replace_on_changes=list(REPLACED_BY_US),
                        delete_before_replace=True,
                        custom_timeouts=pulumi.CustomTimeouts(create=create),
                        hooks=hosts_have_come,
                    ),
                )
                if group.capacity.queued and self.first_queued is None:
                    self.first_queued = pool
        self.register_outputs({})

    def _workload_policy(self, name: str, group_name: str, args: TpuSlicesArgs) -> pulumi.Input[str] | None:
        """Declare the policy that places the slices of a group, if their generation needs one, and return its name."""
        shape = args.spec.slices[group_name].shape
        if not shape.workload_policy_required:
            return None
        policy = gcp.compute.ResourcePolicy(
            f"{name}-{group_name}",
            # The topology is part of the name, because a policy cannot change while pools use it.
            name=pulumi.Output.concat(args.cluster.name, f"-{group_name}-{shape.topology}"),
            region=args.spec.cloud.region,
            workload_policy=gcp.compute.ResourcePolicyWorkloadPolicyArgs(
                type="HIGH_THROUGHPUT", accelerator_topology=shape.topology
            ),
            opts=pulumi.ResourceOptions(parent=self),
        )
        return policy.name


def _hosts_have_come(name: str, endpoint: pulumi.Input[str]) -> pulumi.ResourceHookBinding:
    """Return hooks that refuse to update a slice whose creation failed, until all its hosts exist.

    A node pool that gets no machines, for example because of a stock-out, exists nevertheless, and Pulumi keeps it in
    the state. The next `up` updates it without any change, which succeeds and creates no hosts. If the pool changes,
    there is only a warning. That also happens while spot hosts are temporarily gone."""

    async def look(update: pulumi.ResourceHookArgs) -> None:
        wanted, before = update.new_inputs or {}, update.old_inputs or {}
        # Pools with hosts on request declare no number of nodes.
        if "nodeCount" not in wanted or wanted["nodeCount"] != before.get("nodeCount"):
            return
        cluster = await pulumi.Output.from_input(endpoint).future()
        if cluster is None:
            return
        missing = await asyncio.to_thread(lambda: _missing_hosts(cluster, wanted["name"], int(wanted["nodeCount"])))
        if not missing:
            return
        again = command_line("up", pulumi.get_stack(), *replacing(str(update.name)))
        if wanted == before:
            raise HostsMissingError(
                f"{missing}. An earlier update could not create them, and this update cannot either. Run it again"
                f" when they exist, or recreate the node pool: {again}"
            )
        pulumi.warn(f"{missing}. If they do not appear, recreate the node pool: {again}")

    hook = pulumi.ResourceHook(name, look, pulumi.ResourceHookOptions(on_dry_run=True))
    return pulumi.ResourceHookBinding(before_update=[hook])


def _missing_hosts(endpoint: str, slice_name: str, hosts: int) -> str:
    try:
        found = running_jobs.hosts(ApiServer.at(endpoint), slice_name)
    except UNREACHABLE as error:
        return f"slice {slice_name} may lack some of its {hosts} hosts: the cluster is unreachable ({error})"
    return "" if found >= hosts else f"slice {slice_name} has {found} of {hosts} hosts"


def pool_args(
    pool_name: str, group_name: str, workload_policy: pulumi.Input[str] | None, args: TpuSlicesArgs
) -> gcp.container.NodePoolArgs:
    """Return the node pool of one slice."""
    container = gcp.container
    group, shared = args.spec.slices[group_name], args.cluster.shared
    on_request = group.capacity.on_request
    return container.NodePoolArgs(
        name=pool_name,
        cluster=args.cluster.name,
        location=shared.location if shared else args.spec.cloud.region,
        node_locations=[group.zone_in(args.spec.cloud)],
        node_count=None if on_request else group.shape.hosts,
        # Per zone, because only these limits are compared with a slice's hosts.
        autoscaling=container.NodePoolAutoscalingArgs(
            min_node_count=0, max_node_count=group.shape.hosts, location_policy="ANY"
        )
        if on_request
        else None,
        queued_provisioning=container.NodePoolQueuedProvisioningArgs(enabled=True) if group.capacity.queued else None,
        max_pods_per_node=SLICE_PODS_PER_NODE,
        placement_policy=_placement(group.shape, workload_policy),
        # GKE requires flex-start nodes without repair.
        management=container.NodePoolManagementArgs(auto_repair=not on_request, auto_upgrade=True),
        # An upgrade recreates the whole slice, so there is none while the version is supported.
        maintenance_policies=[
            container.NodePoolMaintenancePolicyArgs(
                exclusion_until_end_of_supports=[
                    container.NodePoolMaintenancePolicyExclusionUntilEndOfSupportArgs(enabled=True)
                ]
            )
        ],
        # GKE has its own strategy for nodes on request. Any other would show up as drift.
        upgrade_settings=None
        if on_request
        else container.NodePoolUpgradeSettingsArgs(strategy="SURGE", max_surge=0, max_unavailable=1),
        network_config=container.NodePoolNetworkConfigArgs(
            enable_private_nodes=shared.private_nodes if shared else True,
            additional_node_network_configs=_interfaces(group, args.cluster.second_network),
        ),
        node_config=_node_config(group_name, group, args),
    )


def _placement(
    shape: SliceShape, workload_policy: pulumi.Input[str] | None
) -> gcp.container.NodePoolPlacementPolicyArgs | None:
    if not shape.multi_host:
        return None
    # With a workload policy GKE stores no type: any other than the empty one would show up as drift.
    kind = "COMPACT" if workload_policy is None else ""
    return gcp.container.NodePoolPlacementPolicyArgs(
        type=kind, policy_name=workload_policy, tpu_topology=shape.topology
    )


def _interfaces(
    group: SliceGroup, second: SubnetNames | None
) -> list[gcp.container.NodePoolNetworkConfigAdditionalNodeNetworkConfigArgs] | None:
    """Return the additional network interfaces of a host. Pods on their host's network see all of them."""
    if second is None or not group.second_network:
        return None
    return [
        gcp.container.NodePoolNetworkConfigAdditionalNodeNetworkConfigArgs(
            network=second.network, subnetwork=second.subnetwork
        )
    ]


def _node_config(group_name: str, group: SliceGroup, args: TpuSlicesArgs) -> gcp.container.NodePoolNodeConfigArgs:
    container = gcp.container
    shape, capacity = group.shape, group.capacity
    return container.NodePoolNodeConfigArgs(
        machine_type=shape.machine_type,
        spot=capacity.spot,
        flex_start=True if capacity.on_request else None,
        max_run_duration=None if capacity.run_seconds is None else f"{capacity.run_seconds}s",
        reservation_affinity=_reservation_affinity(capacity, args.spec.cloud.project),
        boot_disk=container.NodePoolNodeConfigBootDiskArgs(
            disk_type=shape.boot_disk_types[0], size_gb=group.boot_disk_gb
        ),
        secondary_boot_disks=[
            container.NodePoolNodeConfigSecondaryBootDiskArgs(disk_image=group.image_disk, mode="CONTAINER_IMAGE_CACHE")
        ]
        if group.image_disk
        else None,
        labels=declared_node_labels(group_name, group),
        resource_labels=args.labels,
        service_account=args.cluster.node_account,
        oauth_scopes=[CLOUD_PLATFORM_SCOPE],
        workload_metadata_config=container.NodePoolNodeConfigWorkloadMetadataConfigArgs(mode="GKE_METADATA"),
        shielded_instance_config=container.NodePoolNodeConfigShieldedInstanceConfigArgs(
            enable_secure_boot=True, enable_integrity_monitoring=True
        ),
        gvnic=container.NodePoolNodeConfigGvnicArgs(enabled=True),
        # Image streaming: the trainer starts before its image is complete. Disks with images also need it.
        gcfs_config=container.NodePoolNodeConfigGcfsConfigArgs(enabled=True),
    )


def _reservation_affinity(capacity: Capacity, project: str) -> gcp.container.NodePoolNodeConfigReservationAffinityArgs:
    reservation = capacity.reservation(project)
    if reservation is None:
        return gcp.container.NodePoolNodeConfigReservationAffinityArgs(consume_reservation_type="NO_RESERVATION")
    return gcp.container.NodePoolNodeConfigReservationAffinityArgs(
        consume_reservation_type="SPECIFIC_RESERVATION",
        key="compute.googleapis.com/reservation-name",
        values=[reservation],
    )
