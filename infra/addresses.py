"""Address ranges of the network.

Owns the `network` section and the arithmetic of ranges: how many addresses nodes and their pods take.
Which resources take a range is the business of `infra.network` and `infra.cluster`, what a range must
be of `infra.rules.place`.
"""

from ipaddress import IPv4Network
from typing import Annotated

from pydantic import AfterValidator

from workloads.spec import Spec

SLICE_PODS_PER_NODE = 32
"""One trainer and GKE's own; the default of 110 would take four times the addresses."""
SYSTEM_PODS_PER_NODE = 110

SUBNET_OVERHEAD = 4
"""Addresses of each subnet that Google Cloud keeps (https://cloud.google.com/vpc/docs/subnets)."""
CONTROL_PLANE_ADDRESSES = 1
"""Its endpoint lies in the subnet of the nodes."""
SPARE_SYSTEM_NODES = 1
"""An upgrade of the system pool makes a new node before it removes an old one."""

_ADDRESS_BITS = 32


def _range(text: str) -> str:
    try:
        IPv4Network(text)
    except ValueError:
        raise ValueError("a range of IPv4 addresses, such as 10.0.0.0/18, whose first address is its network") from None
    return text


Cidr = Annotated[str, AfterValidator(_range)]


class Network(Spec):
    """Addresses that the VPC uses. They must not meet those of networks it is peered with."""

    nodes: Cidr = "10.0.0.0/18"
    """One for each node. It can be widened in place; any other change needs a new cluster."""
    pods: Cidr = "10.16.0.0/12"
    """GKE gives each node a block of twice as many as it may have pods. A change needs a new cluster."""
    services: Cidr = "10.1.0.0/20"
    """Cluster addresses of Services. A change needs a new cluster."""
    second_nodes: Cidr = "10.2.0.0/18"
    """One for each node of slice groups with `second_network`; used only if there is one."""


def pod_block(pods_per_node: int) -> int:
    """Addresses of the block that a node has for its pods: twice as many as it may have, as a power of two.

    https://cloud.google.com/kubernetes-engine/docs/how-to/flexible-pod-cidr
    """
    return 1 << (2 * pods_per_node - 1).bit_length()


def pod_addresses(hosts: int, system_nodes: int) -> int:
    """Addresses that the pods of so many TPU hosts and system nodes take."""
    return hosts * pod_block(SLICE_PODS_PER_NODE) + system_nodes * pod_block(SYSTEM_PODS_PER_NODE)


def narrowest_prefix(addresses: int) -> int:
    """Length of the prefix of the smallest range with so many addresses."""
    return _ADDRESS_BITS - (addresses - 1).bit_length()
