"""The VPCs of the slices and their way out.

Owns networks, addresses, NAT and what the firewall lets through. Knows nothing of clusters.

GKE makes firewall rules of its own for the cluster and removes them with it. It does not remove those
it made for load balancers of Services that still stood then, and a network with a rule left in it
cannot be deleted. `infra.cluster` keeps GKE from making such rules. What `destroy` still cannot
know are rules that people or an organization's automation added: its error names them, and it goes on
once they are deleted.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra.settings import schema

POD_RANGE, SERVICE_RANGE = "pods", "services"

_JUMBO_FRAME_MTU = 8896
"""The largest that Google Cloud has; traffic between slices gains from it."""


@dataclass(frozen=True)
class NetworkArgs:
    """Name of the network, region of its subnets, and their ranges."""

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


class Network(pulumi.ComponentResource):
    """A network for one cluster, with private nodes that reach the internet through NAT."""

    first: Subnet
    second: Subnet | None
    """A VPC of its own, as each interface of a machine must have. It has no way out: hosts use it among
    each other alone."""

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


def _subnet(
    name: str,
    args: NetworkArgs,
    nodes: str,
    secondary: Mapping[str, str],
    opts: pulumi.ResourceOptions,
) -> Subnet:
    """A VPC with one subnet, whose members reach each other on every port.

    Hosts of different slices talk on ports of the TPU runtime and of JAX that no document lists in
    full, and calls of the API server to webhooks come from a pod or from the control plane's address,
    which lies in the subnet of the nodes.
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
