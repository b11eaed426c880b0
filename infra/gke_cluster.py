"""The GKE cluster, its networks, and the CPU nodes for its controllers. TPU nodes are in `infra.slices`.

GKE creates firewall rules for the cluster and deletes them with it. It does not delete rules for load balancers of
Services that still exist at that time, and a network with a remaining rule cannot be deleted. The cluster's settings
keep GKE from creating such rules. `destroy` cannot know about rules that people or an organization's automation added:
its error names them, and it continues once they are deleted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import pulumi
import pulumi_gcp as gcp

from infra.stack.names import SYSTEM_POOL
from infra.stack.settings import schema
from infra.stack.settings.schema import SYSTEM_PODS_PER_NODE

POD_RANGE, SERVICE_RANGE = "pods", "services"
_JUMBO_FRAME_MTU = 8896
"""The largest MTU of Google Cloud, which makes traffic between slices faster."""


@dataclass(frozen=True)
class NetworkArgs:
    """Name of the network, region of its subnets, and their address ranges."""

    name: str
    region: str
    ranges: schema.Network
    second_network: bool
    """Whether hosts use their second network interface."""


@dataclass(frozen=True)
class Subnet:
    """A network and the subnet of its nodes."""

    network: gcp.compute.Network
    subnetwork: gcp.compute.Subnetwork

    @property
    def names(self) -> "SubnetNames":
        return SubnetNames(self.network.name, self.subnetwork.name)


@dataclass(frozen=True)
class SubnetNames:
    """Names of a network and of one of its subnets."""

    network: pulumi.Input[str]
    subnetwork: pulumi.Input[str]


class Network(pulumi.ComponentResource):
    """The networks of one cluster. Its private nodes reach the internet through NAT."""

    first: Subnet
    second: Subnet | None
    """A separate VPC, because each interface of a machine needs one. It has no route to the internet: hosts use it only
    between each other."""

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tpu-multislice:infra:Network", name, None, opts)
        inside = pulumi.ResourceOptions(parent=self)
        ranges = args.ranges
        secondary = {POD_RANGE: ranges.pods, SERVICE_RANGE: ranges.services}
        second = NetworkArgs(f"{args.name}-second", args.region, ranges, second_network=False)
        self.first = _subnet(name, args, ranges.nodes, secondary, inside)
        self.second = (
            _subnet(f"{name}-second", second, ranges.second_nodes, {}, inside) if args.second_network else None
        )
        router = gcp.compute.Router(
            f"{name}-router", name=f"{args.name}-router", network=self.first.network.id, region=args.region, opts=inside
        )
        gcp.compute.RouterNat(
            f"{name}-nat",
            name=f"{args.name}-nat",
            router=router.name,
            region=args.region,
            nat_ip_allocate_option="AUTO_ONLY",
            source_subnetwork_ip_ranges_to_nat="ALL_SUBNETWORKS_ALL_IP_RANGES",
            opts=inside,
        )
        self.register_outputs({})

    @property
    def node_subnet(self) -> "NodeSubnet":
        first = self.first
        multiple = self.second is not None
        return NodeSubnet(first.network.id, first.subnetwork.id, POD_RANGE, SERVICE_RANGE, multiple)


def _subnet(
    name: str,
    args: NetworkArgs,
    nodes: str,
    secondary: Mapping[str, str],
    opts: pulumi.ResourceOptions,
) -> Subnet:
    """Declare a VPC with one subnet, whose machines can reach each other on every port.

    Hosts of different slices use ports of the TPU runtime and of JAX that no document lists completely. Requests of the
    API server to webhooks come from a pod or from the control plane's address, which is in the subnet of the nodes.
    """
    network = gcp.compute.Network(name, name=args.name, auto_create_subnetworks=False, mtu=_JUMBO_FRAME_MTU, opts=opts)
    subnetwork = gcp.compute.Subnetwork(
        f"{name}-nodes",
        name=f"{args.name}-nodes",
        network=network.id,
        region=args.region,
        ip_cidr_range=nodes,
        secondary_ip_ranges=[
            gcp.compute.SubnetworkSecondaryIpRangeArgs(range_name=range_name, ip_cidr_range=cidr)
            for range_name, cidr in secondary.items()
        ],
        private_ip_google_access=True,
        opts=opts,
    )
    gcp.compute.Firewall(
        f"{name}-inside",
        name=f"{args.name}-inside",
        network=network.id,
        direction="INGRESS",
        source_ranges=[nodes, *(cidr for range_name, cidr in secondary.items() if range_name == POD_RANGE)],
        allows=[gcp.compute.FirewallAllowArgs(protocol=protocol) for protocol in ("tcp", "udp", "icmp")],
        opts=opts,
    )
    return Subnet(network, subnetwork)


CLOUD_PLATFORM_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
"""The roles of the service account limit what a node may do. Scopes would only repeat that less precisely."""


@dataclass(frozen=True)
class NodeSubnet:
    """The subnet of a cluster's nodes, and the names of its secondary ranges."""

    network: pulumi.Input[str]
    """Full name, projects/PROJECT/global/networks/NETWORK."""
    subnetwork: pulumi.Input[str]
    """Full name, projects/PROJECT/regions/REGION/subnetworks/SUBNET."""
    pods: str
    services: str
    multiple: bool
    """Whether hosts have a second network interface."""

    @classmethod
    def found(cls, existing: schema.ExistingNetwork, cloud: schema.Cloud) -> Self:
        """Return the subnet of nodes in an existing network, which may be in another project."""
        project = f"projects/{existing.project or cloud.project}"
        return cls(
            network=f"{project}/global/networks/{existing.network}",
            subnetwork=f"{project}/regions/{cloud.region}/subnetworks/{existing.subnet}",
            pods=existing.pods,
            services=existing.services,
            multiple=False,
        )


@dataclass(frozen=True)
class ClusterArgs:
    """Settings of the cluster, its location, and the service account of its nodes."""

    cloud: schema.Cloud
    settings: schema.Cluster
    network: NodeSubnet
    node_account: pulumi.Input[str]
    labels: Mapping[str, str]
    mounts_datasets: bool
    """Whether pods mount a bucket as a folder."""


@dataclass(frozen=True, kw_only=True)
class SharedCluster:
    """A cluster that exists already, and that others use too. The fleet leaves alone what is theirs."""

    location: str
    """Region or zone of the cluster."""
    private_nodes: bool = True
    """Whether nodes have no addresses on the internet, like the other nodes of the cluster. Default: yes."""
    jobset: schema.Controller = "found"
    """Whether JobSet is in the cluster, or the fleet installs it. Default: it is there."""
    kueue: schema.Controller = "found"
    """Whether Kueue is in the cluster, or the fleet installs it. Default: it is there."""
    counted: tuple[str, ...] = ()
    """Resources besides chips that its Kueue counts, such as `cpu`, so that every queue needs a quota of them.
    Default: none."""

    @property
    def installed(self) -> frozenset[str]:
        """Return the controllers that the fleet installs."""
        return frozenset(name for name, how in (("jobset", self.jobset), ("kueue", self.kueue)) if how == "install")


@dataclass(frozen=True, kw_only=True)
class ClusterOutputs:
    """A cluster that a fleet runs on: one that a `Foundation` of the same program made, or outputs of another program.

    The cluster needs workload identity, a DNS endpoint, and CPU nodes for JobSet and Kueue.
    """

    name: pulumi.Input[str]
    endpoint: pulumi.Input[str]
    """Host name of the DNS endpoint, such as gke-0123.us-east5.gke.goog."""
    node_account: pulumi.Input[str]
    """Email address of the service account of TPU nodes."""
    ranges: schema.Network = schema.Network()
    """Address ranges of the cluster. Pods of teams reach no addresses of other pods. Default: those of a stack file."""
    second_network: SubnetNames | None = None
    """Network for the second interface of hosts. Default: none, so no slice group may set `second_network`."""
    project_number: pulumi.Input[str] | None = None
    """Number that Google assigned to the project. Default: the fleet reads it from Google."""
    shared: SharedCluster | None = None
    """How others use the cluster too. Default: they do not."""
    resource: pulumi.Resource | None = None
    """Resource of the cluster in the same program. When it is deleted, objects in the cluster are not deleted one by
    one. Default: they are."""


class Cluster(pulumi.ComponentResource):
    """A regional control plane with a DNS endpoint and private nodes. The system nodes are in one zone."""

    resource: gcp.container.Cluster
    """Resource of the GKE cluster. When it is deleted, objects in the cluster need not be deleted one by one."""
    name: pulumi.Output[str]
    endpoint: pulumi.Output[str]

    def __init__(self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tpu-multislice:infra:Cluster", name, None, opts)
        cluster = gcp.container.Cluster(
            name,
            _cluster_args(args),
            # The first pool exists only for minutes; afterwards the field shows another pool.
            opts=pulumi.ResourceOptions(parent=self, ignore_changes=["nodeConfig"]),
        )
        inside = pulumi.ResourceOptions(parent=self, deleted_with=cluster)
        gcp.container.NodePool(f"{name}-system", _system_pool_args(args, cluster), opts=inside)
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
        # GKE cannot create a cluster without a pool, so one node is created and deleted at once.
        initial_node_count=1,
        remove_default_node_pool=True,
        node_config=container.ClusterNodeConfigArgs(
            service_account=args.node_account, oauth_scopes=[CLOUD_PLATFORM_SCOPE]
        ),
        resource_labels=args.labels,
        network=args.network.network,
        subnetwork=args.network.subnetwork,
        networking_mode="VPC_NATIVE",
        ip_allocation_policy=container.ClusterIpAllocationPolicyArgs(
            cluster_secondary_range_name=args.network.pods, services_secondary_range_name=args.network.services
        ),
        datapath_provider="ADVANCED_DATAPATH",
        enable_multi_networking=args.network.multiple,
        # Nothing in the cluster is reachable from outside. So there is no load balancer whose firewall rules could
        # outlive the cluster and block the deletion of its network.
        disable_l4_lb_firewall_reconciliation=True,
        addons_config=_addons(args),
        private_cluster_config=container.ClusterPrivateClusterConfigArgs(enable_private_nodes=True),
        control_plane_endpoints_config=_endpoints(args.settings),
        master_authorized_networks_config=_authorized_networks(args.settings),
        maintenance_policy=_maintenance(args.settings),
        workload_identity_config=container.ClusterWorkloadIdentityConfigArgs(
            workload_pool=f"{args.cloud.project}.svc.id.goog"
        ),
        authenticator_groups_config=_groups(args.settings),
        # Anonymous users see only whether the control plane is healthy, whatever is bound to them.
        anonymous_authentication_config=container.ClusterAnonymousAuthenticationConfigArgs(mode="LIMITED"),
        rbac_binding_config=container.ClusterRbacBindingConfigArgs(
            enable_insecure_binding_system_authenticated=False, enable_insecure_binding_system_unauthenticated=False
        ),
        database_encryption=_encryption(args.settings),
        logging_config=container.ClusterLoggingConfigArgs(enable_components=["SYSTEM_COMPONENTS", "WORKLOADS"]),
        monitoring_config=_monitoring(),
    )


def _addons(args: ClusterArgs) -> gcp.container.ClusterAddonsConfigArgs:
    container = gcp.container
    return container.ClusterAddonsConfigArgs(
        http_load_balancing=container.ClusterAddonsConfigHttpLoadBalancingArgs(disabled=True),
        gcs_fuse_csi_driver_config=container.ClusterAddonsConfigGcsFuseCsiDriverConfigArgs(
            enabled=args.mounts_datasets
        ),
    )


def _monitoring() -> gcp.container.ClusterMonitoringConfigArgs:
    container = gcp.container
    return container.ClusterMonitoringConfigArgs(
        enable_components=["SYSTEM_COMPONENTS", "JOBSET"],
        managed_prometheus=container.ClusterMonitoringConfigManagedPrometheusArgs(enabled=True),
    )


def _endpoints(settings: schema.Cluster) -> gcp.container.ClusterControlPlaneEndpointsConfigArgs:
    """Return the DNS endpoint, plus the IP endpoint if some networks may use it."""
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
    """Return the networks that may use the IP endpoint. GKE keeps the list when it is removed here, but not the
    endpoint."""
    container = gcp.container
    if not settings.authorized_networks:
        return None
    return container.ClusterMasterAuthorizedNetworksConfigArgs(
        cidr_blocks=[
            container.ClusterMasterAuthorizedNetworksConfigCidrBlockArgs(display_name=name, cidr_block=cidr)
            for name, cidr in settings.authorized_networks.items()
        ],
        # Otherwise every machine of every Google Cloud customer could connect.
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
            "expected GKE to give the cluster a DNS endpoint, got none; run `pulumi refresh` and check the cluster"
        )
    return dns.endpoint
