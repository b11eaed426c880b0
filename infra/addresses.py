"""Address ranges of the network.

Owns the `network` section and the arithmetic of ranges: how many nodes and pods fit. Which resources
take a range is the business of `infra.network` and `infra.cluster`.
"""

from ipaddress import IPv4Network
from typing import Annotated

from pydantic import AfterValidator

from workloads.spec import Spec


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
    """One for each node. It can be widened in place; any other change replaces subnet and cluster."""
    pods: Cidr = "10.16.0.0/12"
    """GKE gives each node a block of twice as many as it may have pods. A change replaces the cluster."""
    services: Cidr = "10.1.0.0/20"
    """Cluster addresses of Services. A change replaces the cluster."""
    second_nodes: Cidr = "10.2.0.0/18"
    """One for each node of slice groups with `second_network`; used only if there is one."""
