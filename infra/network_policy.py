"""Whom the pods of a team reach, and who reaches them.

Owns the network policy of a team's namespace. Pure; that it is enforced is the business of the cluster's
dataplane (`infra.cluster`), that machines outside are kept out that of the firewall (`infra.network`).

Nothing is let in from outside the namespace. Metrics need no rule: GKE's agent reads libtpu's port from
the pod's own node, which a policy never shuts out, as it never shuts out kubelet
(https://kubernetes.io/docs/concepts/services-networking/network-policies/).

Pods on the network of their host have no policy at all: to the dataplane they are the node.
"""

from infra.addresses import Network
from infra.flavors import Manifest

NAME = "own-namespace"

_EVERYWHERE = "0.0.0.0/0"
_HTTPS, _DNS = 443, 53
_METADATA_SERVER = "169.254.169.254/32"
_METADATA_PORTS = (80, 8080)
"""Of GKE's metadata server under Dataplane V2, which gives pods their Google identity
(https://cloud.google.com/kubernetes-engine/docs/how-to/network-policy)."""
_DNS_PODS = ("kube-dns", "node-local-dns")
_NODE_LOCAL_DNS = "169.254.20.10/32"
"""Where NodeLocal DNSCache answers
(https://cloud.google.com/kubernetes-engine/docs/how-to/nodelocal-dns-cache)."""


def of_team(namespace: str, network: Network) -> Manifest:
    """All pods of the namespace: each other, names, their Google identity, HTTPS outside the cluster's pods."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": {
            "podSelector": {},
            "policyTypes": ["Ingress", "Egress"],
            # On every port: those of the TPU runtime are listed in full nowhere.
            "ingress": [{"from": [{"podSelector": {}}]}],
            "egress": [{"to": [{"podSelector": {}}]}, _names(), _identity(), _services_of_google(network)],
        },
    }


def _names() -> Manifest:
    """The cluster's DNS, whichever of its forms GKE has chosen: pods, a cache on the node, or Cloud DNS."""
    pods = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchExpressions": [{"key": "k8s-app", "operator": "In", "values": list(_DNS_PODS)}]},
    }
    return {
        "to": [pods, _block(_NODE_LOCAL_DNS), _block(_METADATA_SERVER)],
        "ports": [{"protocol": protocol, "port": _DNS} for protocol in ("UDP", "TCP")],
    }


def _identity() -> Manifest:
    ports = [{"protocol": "TCP", "port": port} for port in _METADATA_PORTS]
    return {"to": [_block(_METADATA_SERVER)], "ports": ports}


def _services_of_google(network: Network) -> Manifest:
    """Google's APIs, whose addresses change, and the API server, whose address lies in the range of the nodes.

    The address of a Service is exchanged for that of a pod behind it before a policy is asked, so the
    range of the pods stands for both.
    """
    block = {"cidr": _EVERYWHERE, "except": [network.pods, network.second_nodes]}
    return {"to": [{"ipBlock": block}], "ports": [{"protocol": "TCP", "port": _HTTPS}]}


def _block(cidr: str) -> Manifest:
    return {"ipBlock": {"cidr": cidr}}
