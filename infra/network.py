"""The VPC of the slices and its way out.

Owns network, addresses, NAT and the firewall rule for webhooks. GKE adds its own firewall rules for
nodes and pods; they are not declared here. Knows nothing of clusters.
"""

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

POD_RANGE, SERVICE_RANGE = "pods", "services"

_JUMBO_FRAME_MTU = 8896
"""The largest that Google Cloud has; traffic between slices gains from it."""
_NODE_CIDR = "10.0.0.0/20"
_POD_CIDR = "10.8.0.0/13"
_SERVICE_CIDR = "10.16.0.0/20"
_WEBHOOK_PORT = "9443"
"""Where JobSet and Kueue answer the API server."""


@dataclass(frozen=True)
class NetworkArgs:
    """Name of the network and region of its subnet."""

    name: str
    region: str


class Network(pulumi.ComponentResource):
    """A network for one cluster, with private nodes that reach the internet through NAT."""

    network: gcp.compute.Network
    subnetwork: gcp.compute.Subnetwork

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tpu-multislice:infra:Network", name, None, opts)
        inside = pulumi.ResourceOptions(parent=self)
        self.network = gcp.compute.Network(
            name, name=args.name, auto_create_subnetworks=False, mtu=_JUMBO_FRAME_MTU, opts=inside
        )
        self.subnetwork = gcp.compute.Subnetwork(
            f"{name}-nodes",
            name=f"{args.name}-nodes",
            network=self.network.id,
            region=args.region,
            ip_cidr_range=_NODE_CIDR,
            secondary_ip_ranges=[
                gcp.compute.SubnetworkSecondaryIpRangeArgs(range_name=POD_RANGE, ip_cidr_range=_POD_CIDR),
                gcp.compute.SubnetworkSecondaryIpRangeArgs(range_name=SERVICE_RANGE, ip_cidr_range=_SERVICE_CIDR),
            ],
            private_ip_google_access=True,
            opts=inside,
        )
        router = gcp.compute.Router(
            f"{name}-router", name=f"{args.name}-router", network=self.network.id, region=args.region, opts=inside
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
        # GKE lets a private cluster's control plane reach nodes on 443 and 10250 alone; its address
        # lies in the subnet of the nodes.
        gcp.compute.Firewall(
            f"{name}-webhooks",
            name=f"{args.name}-webhooks",
            network=self.network.id,
            direction="INGRESS",
            source_ranges=[_NODE_CIDR],
            allows=[gcp.compute.FirewallAllowArgs(protocol="tcp", ports=[_WEBHOOK_PORT])],
            opts=inside,
        )
        self.register_outputs({})
