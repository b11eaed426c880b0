"""Whom the pods of a team reach, and who reaches them.

Owns the network policy of a team's namespace. Pure; that it is enforced is the business of the cluster's
dataplane (`infra.cluster`), that machines outside are kept out that of the firewall (`infra.network`).

Nothing is let in from outside the namespace but the collectors of Managed Prometheus, which are pods, at the one
port where trainers answer them. GKE's agent needs no rule: it reads libtpu's port from the pod's own node, which a
policy never shuts out, as it never shuts out kubelet
(https://kubernetes.io/docs/concepts/services-networking/network-policies/).

Pods on the network of their host have no policy at all: to the dataplane they are the node.
"""

from infra.names import COLLECTOR_LABELS, COLLECTORS_NAMESPACE, Manifest
from infra.settings.schema import Network
from workloads.spec import METRICS_PORT

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


def of_team(namespace: str, network: Network, *, monitored: bool) -> Manifest:
    """All pods of the namespace: each other, names, their Google identity, HTTPS outside the cluster's pods; and
    where they are `monitored`, the collectors."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": {
            "podSelector": {},
            "policyTypes": ["Ingress", "Egress"],
            # On every port: those of the TPU runtime are listed in full nowhere.
            "ingress": [{"from": [{"podSelector": {}}]}, *([_collectors()] if monitored else ())],
            "egress": [{"to": [{"podSelector": {}}]}, _names(), _identity(), _services_of_google(network)],
        },
    }


def _collectors() -> Manifest:
    peer = {**_pods_of(COLLECTORS_NAMESPACE), "podSelector": {"matchLabels": COLLECTOR_LABELS}}
    return {"from": [peer], "ports": [{"protocol": "TCP", "port": METRICS_PORT}]}


def _pods_of(namespace: str) -> Manifest:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}


def _names() -> Manifest:
    """The cluster's DNS, whichever of its forms GKE has chosen: pods, a cache on the node, or Cloud DNS."""
    pods = {
        **_pods_of("kube-system"),
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
