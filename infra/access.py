"""What the members of a team may do in the cluster, what its namespace may hold, and what its pods reach.

This is about the cluster only: a role in Google Cloud, such as `roles/container.developer`, adds rights of its own in
every namespace. A member's only way to a pod is a JobSet, which Kueue admits to the team's own queue and whose pods are
bound by the namespace's Pod Security level and network policy. Whoever may create pods may use what the namespace has
for pods: the trainer's identity and the secrets of the team's jobs."""

from collections.abc import Mapping, Sequence

from infra.names import (
    COLLECTOR_LABELS,
    COLLECTORS_NAMESPACE,
    JOBSET_GROUP,
    KUEUE_GROUP,
    NAMESPACE_LABEL,
    RBAC_GROUP,
)
from infra.objects import Manifest, manifest
from infra.settings.schema import Members, Network
from workloads.spec import METRICS_PORT

MEMBERS = "members"
"""Name of role and binding."""
NETWORK_POLICY = "own-namespace"

_OTHER_PODS = 100
"""Pods of a team that need no TPU host, such as heads of Pathways jobs."""
_OTHER_SECRETS = 100
"""Secrets that do not belong to a call of a function."""
_MOST_JOBS, _MOST_CALLS = 10_000, 2_000
"""A JobSet has a Job for each slice, and keeps them until it is removed, a day after its end. There is no quota for
JobSets: the API server would refuse all of them until the controller manager has found the new kind."""

_SEE = ("get", "list", "watch")
_GRANTED: Sequence[tuple[str, Sequence[str], Sequence[str]]] = (
    (JOBSET_GROUP, ("jobsets",), ("create", "delete", *_SEE)),
    ("", ("secrets",), ("create",)),
    ("batch", ("jobs",), _SEE),
    ("", ("pods", "events"), _SEE),
    ("events.k8s.io", ("events",), _SEE),
    ("", ("pods/log",), ("get",)),
    (KUEUE_GROUP, ("workloads", "localqueues"), _SEE),
    (KUEUE_GROUP, ("workloads",), ("patch",)),
)
"""API group, resources and verbs. JobSets cannot be changed, because identity and priority of their pods are decided
when they are created. A Workload can be changed to suspend and resume a job; `infra.borders` refuses everything else.
There are no commands in pods, since members must not touch a colleague's trainer. A Secret, for the key of a call, can
be created but not read or changed; `infra.borders` refuses other types."""

_EVERYWHERE = "0.0.0.0/0"
_HTTPS, _DNS = 443, 53
_METADATA_SERVER = "169.254.169.254/32"
_METADATA_PORTS = (80, 8080)
"""Ports of GKE's metadata server under Dataplane V2, which gives pods their Google identity
(https://cloud.google.com/kubernetes-engine/docs/how-to/network-policy)."""
_DNS_PODS = ("kube-dns", "node-local-dns")
_NODE_LOCAL_DNS = "169.254.20.10/32"
"""Address of NodeLocal DNSCache (https://cloud.google.com/kubernetes-engine/docs/how-to/nodelocal-dns-cache)."""


def role(namespace: str) -> Manifest:
    """Return the role to submit, see, suspend and delete jobs, and to read what explains them."""
    rules = [
        {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
        for group, resources, verbs in _GRANTED
    ]
    return manifest(f"{RBAC_GROUP}/v1", "Role", MEMBERS, namespace, rules=rules)


def binding(namespace: str, members: Members) -> Manifest:
    """Return the binding that gives the members the role."""
    reference = {"apiGroup": RBAC_GROUP, "kind": "Role", "name": MEMBERS}
    found = subjects(members)
    return manifest(f"{RBAC_GROUP}/v1", "RoleBinding", MEMBERS, namespace, roleRef=reference, subjects=found)


def subjects(members: Members) -> list[Mapping[str, str]]:
    """Return the members as RBAC names them."""
    kinds = {"User": members.users, "Group": members.groups}
    return [
        {"apiGroup": RBAC_GROUP, "kind": kind, "name": address}
        for kind, addresses in kinds.items()
        for address in addresses
    ]


def no_pod_priority(namespace: str) -> Manifest:
    """Return the quota that refuses pods with a priority of the scheduler.

    Such a pod would preempt other teams' pods, whatever their queues say. Kueue counts that priority before there is a
    pod, so `infra.borders` refuses the job as well. A PriorityClass that is the cluster's default would keep out every
    pod.
    """
    scope = {"scopeName": "PriorityClass", "operator": "Exists"}
    spec: Manifest = {"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": [scope]}}
    return manifest("v1", "ResourceQuota", "no-pod-priority", namespace, spec=spec)


def bounds(namespace: str, hosts: int) -> Manifest:
    """Return what the namespace may hold in a cluster with so many TPU hosts: no disks, and no more pods and Jobs than
    the API server can store. Chips are counted by the team's queue.

    There is room for the pods of two attempts of a job, because some may end while those of the next one begin.
    """
    hard = {
        "pods": str(2 * hosts + _OTHER_PODS),
        "count/jobs.batch": str(_MOST_JOBS),
        "count/secrets": str(_MOST_CALLS + _OTHER_SECRETS),
        "persistentvolumeclaims": "0",
    }
    return manifest("v1", "ResourceQuota", "bounds", namespace, spec={"hard": hard})


def network_policy(namespace: str, network: Network, *, monitored: bool) -> Manifest:
    """Return what all pods of a team's namespace reach: each other, DNS, their Google identity, and HTTPS outside the
    cluster's pods. If they are `monitored`, the collectors of Managed Prometheus reach them.

    GKE's agent needs no rule: it reads libtpu's port from the pod's own node, which a policy never keeps out
    (https://kubernetes.io/docs/concepts/services-networking/network-policies/). Pods on the network of their host have
    no policy, because to the dataplane they are the node.
    """
    # On every port: no document lists all those of the TPU runtime.
    peers: Manifest = {"podSelector": {}}
    spec: Manifest = {
        "podSelector": {},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [peers]}, *([_collectors()] if monitored else ())],
        "egress": [{"to": [peers]}, _dns(), _identity(), _services_of_google(network)],
    }
    return manifest("networking.k8s.io/v1", "NetworkPolicy", NETWORK_POLICY, namespace, spec=spec)


def _collectors() -> Manifest:
    peer = {**_pods_of(COLLECTORS_NAMESPACE), "podSelector": {"matchLabels": COLLECTOR_LABELS}}
    return {"from": [peer], "ports": [{"protocol": "TCP", "port": METRICS_PORT}]}


def _pods_of(namespace: str) -> Manifest:
    return {"namespaceSelector": {"matchLabels": {NAMESPACE_LABEL: namespace}}}


def _dns() -> Manifest:
    """Return the rule for the cluster's DNS, in any form that GKE may choose: pods, a cache on the node, or Cloud
    DNS."""
    names = {"key": "k8s-app", "operator": "In", "values": list(_DNS_PODS)}
    pods = {**_pods_of("kube-system"), "podSelector": {"matchExpressions": [names]}}
    return {
        "to": [pods, _block(_NODE_LOCAL_DNS), _block(_METADATA_SERVER)],
        "ports": [{"protocol": protocol, "port": _DNS} for protocol in ("UDP", "TCP")],
    }


def _identity() -> Manifest:
    ports = [{"protocol": "TCP", "port": port} for port in _METADATA_PORTS]
    return {"to": [_block(_METADATA_SERVER)], "ports": ports}


def _services_of_google(network: Network) -> Manifest:
    """Return the rule for Google's APIs, whose addresses change, and the API server, which is in the range of the
    nodes.

    The address of a Service is replaced by that of a pod before a policy is evaluated, so the range of the pods stands
    for both.
    """
    block = {"cidr": _EVERYWHERE, "except": [network.pods, network.second_nodes]}
    return {"to": [{"ipBlock": block}], "ports": [{"protocol": "TCP", "port": _HTTPS}]}


def _block(cidr: str) -> Manifest:
    return {"ipBlock": {"cidr": cidr}}
