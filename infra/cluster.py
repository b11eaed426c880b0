"""The GKE cluster and the CPU nodes for its controllers.

Owns the control plane's settings and the system pool. TPU nodes are the business of `infra.slices`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra.names import SYSTEM_POOL
from infra.network import POD_RANGE, SERVICE_RANGE, Network
from infra.settings import schema
from infra.settings.schema import SYSTEM_PODS_PER_NODE

CLOUD_PLATFORM_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
"""The service account's roles say what a node may do; scopes only repeat it less well."""


@dataclass(frozen=True)
class ClusterArgs:
    """Settings of the cluster, where it lies, and who its nodes are."""

    cloud: schema.Cloud
    settings: schema.Cluster
    network: Network
    node_account: pulumi.Input[str]
    labels: Mapping[str, str]
    mounts_datasets: bool
    """Whether pods see a bucket as a folder."""


class Cluster(pulumi.ComponentResource):
    """A regional control plane reached by its DNS endpoint, with private nodes. The system nodes are in one zone."""

    resource: gcp.container.Cluster
    """Objects in the cluster need not be deleted one by one when this one is."""
    name: pulumi.Output[str]
    endpoint: pulumi.Output[str]
    """Host name of the DNS endpoint."""

    def __init__(self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tpu-multislice:infra:Cluster", name, None, opts)
        cluster = gcp.container.Cluster(
            name,
            _cluster_args(args),
            # The first pool lives for minutes only; afterwards the field shows some other pool.
            opts=pulumi.ResourceOptions(parent=self, ignore_changes=["nodeConfig"]),
        )
        gone_with_it = pulumi.ResourceOptions(parent=self, deleted_with=cluster)
        gcp.container.NodePool(f"{name}-system", _system_pool_args(args, cluster), opts=gone_with_it)
        self.resource = cluster
        self.name = cluster.name
        self.endpoint = cluster.control_plane_endpoints_config.apply(_dns_endpoint)
        self.register_outputs({})


def _cluster_args(args: ClusterArgs) -> gcp.container.ClusterArgs:
    container = gcp.container
    return container.ClusterArgs(
        name=args.settings.name,
        location=args.cloud.region,
        node_locations=[args.cloud.zone],
        deletion_protection=args.settings.deletion_protection,
        release_channel=container.ClusterReleaseChannelArgs(channel=args.settings.release_channel),
        # GKE makes no cluster without a pool: one node comes first and goes at once.
        initial_node_count=1,
        remove_default_node_pool=True,
        node_config=container.ClusterNodeConfigArgs(
            service_account=args.node_account, oauth_scopes=[CLOUD_PLATFORM_SCOPE]
        ),
        resource_labels=args.labels,
        network=args.network.first.network.id,
        subnetwork=args.network.first.subnetwork.id,
        networking_mode="VPC_NATIVE",
        ip_allocation_policy=container.ClusterIpAllocationPolicyArgs(
            cluster_secondary_range_name=POD_RANGE, services_secondary_range_name=SERVICE_RANGE
        ),
        datapath_provider="ADVANCED_DATAPATH",
        enable_multi_networking=args.network.second is not None,
        # Nothing in the cluster is reached from outside: no load balancer, and so none whose firewall
        # rules outlive the cluster and keep its network from being deleted.
        disable_l4_lb_firewall_reconciliation=True,
        addons_config=container.ClusterAddonsConfigArgs(
            http_load_balancing=container.ClusterAddonsConfigHttpLoadBalancingArgs(disabled=True),
            gcs_fuse_csi_driver_config=container.ClusterAddonsConfigGcsFuseCsiDriverConfigArgs(
                enabled=args.mounts_datasets
            ),
        ),
        private_cluster_config=container.ClusterPrivateClusterConfigArgs(enable_private_nodes=True),
        control_plane_endpoints_config=_endpoints(args.settings),
        master_authorized_networks_config=_authorized_networks(args.settings),
        maintenance_policy=_maintenance(args.settings),
        workload_identity_config=container.ClusterWorkloadIdentityConfigArgs(
            workload_pool=f"{args.cloud.project}.svc.id.goog"
        ),
        authenticator_groups_config=_groups(args.settings),
        # Without signing in one sees whether the control plane is well, and no binding changes that.
        anonymous_authentication_config=container.ClusterAnonymousAuthenticationConfigArgs(mode="LIMITED"),
        rbac_binding_config=container.ClusterRbacBindingConfigArgs(
            enable_insecure_binding_system_authenticated=False, enable_insecure_binding_system_unauthenticated=False
        ),
        database_encryption=_encryption(args.settings),
        logging_config=container.ClusterLoggingConfigArgs(enable_components=["SYSTEM_COMPONENTS", "WORKLOADS"]),
        monitoring_config=_monitoring(),
    )


def _monitoring() -> gcp.container.ClusterMonitoringConfigArgs:
    container = gcp.container
    return container.ClusterMonitoringConfigArgs(
        enable_components=["SYSTEM_COMPONENTS", "JOBSET"],
        managed_prometheus=container.ClusterMonitoringConfigManagedPrometheusArgs(enabled=True),
    )


def _endpoints(settings: schema.Cluster) -> gcp.container.ClusterControlPlaneEndpointsConfigArgs:
    """The DNS endpoint, and the IP endpoint where there are networks that may use it."""
    container = gcp.container
    return container.ClusterControlPlaneEndpointsConfigArgs(
        dns_endpoint_config=container.ClusterControlPlaneEndpointsConfigDnsEndpointConfigArgs(
            allow_external_traffic=True
        ),
        ip_endpoints_config=container.ClusterControlPlaneEndpointsConfigIpEndpointsConfigArgs(
            enabled=bool(settings.authorized_networks)
        ),
    )


def _authorized_networks(
    settings: schema.Cluster,
) -> gcp.container.ClusterMasterAuthorizedNetworksConfigArgs | None:
    """Who may use the IP endpoint. Once declared it stays when it is removed here; the endpoint does not."""
    container = gcp.container
    if not settings.authorized_networks:
        return None
    return container.ClusterMasterAuthorizedNetworksConfigArgs(
        cidr_blocks=[
            container.ClusterMasterAuthorizedNetworksConfigCidrBlockArgs(display_name=name, cidr_block=cidr)
            for name, cidr in settings.authorized_networks.items()
        ],
        # Any machine that anyone rents from Google Cloud would be let in besides.
        gcp_public_cidrs_access_enabled=False,
    )


def _encryption(settings: schema.Cluster) -> gcp.container.ClusterDatabaseEncryptionArgs | None:
    if settings.encryption_key is None:
        return None
    return gcp.container.ClusterDatabaseEncryptionArgs(state="ENCRYPTED", key_name=settings.encryption_key)


def _groups(settings: schema.Cluster) -> gcp.container.ClusterAuthenticatorGroupsConfigArgs | None:
    if settings.security_group is None:
        return None
    return gcp.container.ClusterAuthenticatorGroupsConfigArgs(security_group=settings.security_group)


def _maintenance(settings: schema.Cluster) -> gcp.container.ClusterMaintenancePolicyArgs | None:
    container, window = gcp.container, settings.maintenance
    if window is None:
        return None
    return container.ClusterMaintenancePolicyArgs(
        recurring_window=container.ClusterMaintenancePolicyRecurringWindowArgs(
            start_time=window.start, end_time=window.end, recurrence=window.recurrence
        )
    )


def _system_pool_args(args: ClusterArgs, cluster: gcp.container.Cluster) -> gcp.container.NodePoolArgs:
    container = gcp.container
    return container.NodePoolArgs(
        name=SYSTEM_POOL,
        cluster=cluster.name,
        location=args.cloud.region,
        node_locations=[args.cloud.zone],
        node_count=args.settings.system_nodes,
        max_pods_per_node=SYSTEM_PODS_PER_NODE,
        management=container.NodePoolManagementArgs(auto_repair=True, auto_upgrade=True),
        network_config=container.NodePoolNetworkConfigArgs(enable_private_nodes=True),
        node_config=container.NodePoolNodeConfigArgs(
            machine_type=args.settings.system_machine_type,
            resource_labels=args.labels,
            service_account=args.node_account,
            oauth_scopes=[CLOUD_PLATFORM_SCOPE],
            workload_metadata_config=container.NodePoolNodeConfigWorkloadMetadataConfigArgs(mode="GKE_METADATA"),
            shielded_instance_config=container.NodePoolNodeConfigShieldedInstanceConfigArgs(
                enable_secure_boot=True, enable_integrity_monitoring=True
            ),
        ),
    )


def _dns_endpoint(endpoints: gcp.container.outputs.ClusterControlPlaneEndpointsConfig) -> str:
    dns = endpoints.dns_endpoint_config
    if dns is None or dns.endpoint is None:
        raise ValueError(
            "expected GKE to give the cluster a DNS endpoint, got none; run `pulumi refresh` and look at it"
        )
    return dns.endpoint
