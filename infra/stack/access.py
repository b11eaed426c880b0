"""What the members of a team may do in the cluster, what its namespace may hold, and what its pods can reach.

This covers only the cluster: a role in Google Cloud, such as `roles/container.developer`, adds rights of its own in
every namespace. A member gets pods only through a JobSet, which Kueue admits to the team's own queue. Its pods are
restricted by the namespace's Pod Security level and network policy. Anyone who may create pods may use what the
namespace provides to pods: the trainer's identity and the secrets of the team's jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.stack.controllers import Resources
from infra.stack.manifests import Manifest, manifest, role_binding
from infra.stack.names import (
    COLLECTOR_LABELS,
    COLLECTORS_NAMESPACE,
    JOBSET_GROUP,
    KUEUE_GROUP,
    NAMESPACE_LABEL,
    PUBLISHED,
    RBAC_GROUP,
)
from infra.stack.settings.jobs import PodLevel
from infra.stack.settings.schema import Members, Network
from infra.stack.settings.stack import MIN_HEAD_LIMIT
from workloads.spec import METRICS_PORT

MEMBERS = "members"
NETWORK_POLICY = "own-namespace"

_OTHER_PODS = 100
"""Number of a team's pods that need no TPU host, such as heads of Pathways jobs."""
_OTHER_SECRETS = 100
"""Number of Secrets that do not belong to a function call."""
_MAX_JOBS, _MAX_CALLS = 10_000, 2_000
"""A JobSet has one Job per slice and keeps them until it is deleted, one day after it ends. JobSets have no quota: the
API server would refuse all of them until the controller manager has discovered the new kind."""

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
when they are created. A Workload can be changed to suspend and resume a job, and to keep the causes of its restarts;
`infra.stack.admission_policies` refuses everything else. Members cannot run commands in pods, because they must not
touch a colleague's trainer. A Secret, for the key of a call, can be created but not read or changed;
`infra.stack.admission_policies` refuses other types."""

_EVERYWHERE = "0.0.0.0/0"
_HTTPS, _DNS = 443, 53
_METADATA_SERVER = "169.254.169.254/32"
_METADATA_PORTS = (80, 8080)
"""Ports of GKE's metadata server under Dataplane V2, which gives pods their Google identity
(https://cloud.google.com/kubernetes-engine/docs/how-to/network-policy)."""
_DNS_PODS = ("kube-dns", "node-local-dns")
_NODE_LOCAL_DNS = "169.254.20.10/32"
"""Address of NodeLocal DNSCache (https://cloud.google.com/kubernetes-engine/docs/how-to/nodelocal-dns-cache)."""


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """What a team's pods may do."""

    pod_level: PodLevel = "restricted"
    """Pod Security level of the team's namespace. `baseline` also admits root, `privileged` admits everything. Default:
    the strictest."""
    host_network: bool = False
    """Whether pods may use the network of their hosts. They then act as the service account of the nodes, and the level
    must be `privileged`. Default: no."""
    head_limit: Resources = MIN_HEAD_LIMIT
    """Largest CPU and memory request of a pod without chips, such as the head of a Pathways job. Default: 4 vCPUs and
    16 GiB."""
    folders: Sequence[str] = ()
    """Folders of the checkpoint bucket that the pods read and write besides the team's own. Default: none."""


def role(namespace: str) -> Manifest:
    """Return the role that allows members to submit, see, suspend and delete jobs, and to read what explains them."""
    rules: list[Manifest] = [
        {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
        for group, resources, verbs in _GRANTED
    ]
    # What the stack publishes, and no other ConfigMap: others may belong to colleagues' programs.
    rules.append({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": [PUBLISHED]})
    return manifest(f"{RBAC_GROUP}/v1", "Role", MEMBERS, namespace, rules=rules)


def binding(namespace: str, members: Members) -> Manifest:
    """Return the binding that gives the members the role."""
    return role_binding(MEMBERS, MEMBERS, subjects(members), namespace)


def subjects(members: Members) -> list[Mapping[str, str]]:
    """Return the members as RBAC subjects."""
    kinds = {"User": members.users, "Group": members.groups}
    return [
        {"apiGroup": RBAC_GROUP, "kind": kind, "name": address}
        for kind, addresses in kinds.items()
        for address in addresses
    ]


def no_pod_priority(namespace: str) -> Manifest:
    """Return the quota that refuses pods with a scheduler priority.

    Such a pod would preempt other teams' pods, whatever their queues say. Kueue counts that priority before any pod
    exists, so `infra.stack.admission_policies` refuses the job as well. If a PriorityClass is the cluster's default,
    this quota refuses every pod.
    """
    scope = {"scopeName": "PriorityClass", "operator": "Exists"}
    spec: Manifest = {"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": [scope]}}
    return manifest("v1", "ResourceQuota", "no-pod-priority", namespace, spec=spec)


def bounds(namespace: str, hosts: int) -> Manifest:
    """Return the quota of the namespace in a cluster with `hosts` TPU hosts: no disks, and no more pods and Jobs than
    the API server can store. The team's queue counts the chips.

    It leaves room for the pods of two attempts of a job, because some may still be ending while the next ones start.
    """
    hard = {
        "pods": str(2 * hosts + _OTHER_PODS),
        "count/jobs.batch": str(_MAX_JOBS),
        "count/secrets": str(_MAX_CALLS + _OTHER_SECRETS),
        "persistentvolumeclaims": "0",
    }
    return manifest("v1", "ResourceQuota", "bounds", namespace, spec={"hard": hard})


def network_policy(namespace: str, network: Network, *, monitored: bool) -> Manifest:
    """Return the policy on what the pods of a team's namespace can reach: each other, DNS, their Google identity, and
    HTTPS outside the cluster's pods. If they are `monitored`, the collectors of Managed Prometheus can reach them.

    GKE's agent needs no rule: it reads libtpu's port from the pod's own node, which a policy never blocks
    (https://kubernetes.io/docs/concepts/services-networking/network-policies/). Pods on the network of their host have
    no policy, because to the dataplane they are the node.
    """
    # All ports, because no document lists all ports of the TPU runtime.
    peers: Manifest = {"podSelector": {}}
    collectors = {**_pods_of(COLLECTORS_NAMESPACE), "podSelector": {"matchLabels": COLLECTOR_LABELS}}
    identity = [{"protocol": "TCP", "port": port} for port in _METADATA_PORTS]
    spec: Manifest = {
        "podSelector": {},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            {"from": [peers]},
            *([{"from": [collectors], "ports": [{"protocol": "TCP", "port": METRICS_PORT}]}] if monitored else ()),
        ],
        "egress": [
            {"to": [peers]},
            _dns(),
            {"to": [_block(_METADATA_SERVER)], "ports": identity},
            _services_of_google(network),
        ],
    }
    return manifest("networking.k8s.io/v1", "NetworkPolicy", NETWORK_POLICY, namespace, spec=spec)


def _pods_of(namespace: str) -> Manifest:
    return {"namespaceSelector": {"matchLabels": {NAMESPACE_LABEL: namespace}}}


def _dns() -> Manifest:
    """Return the rule for the cluster's DNS in every form that GKE may use: pods, a cache on the node, or Cloud
    DNS."""
    names = {"key": "k8s-app", "operator": "In", "values": list(_DNS_PODS)}
    pods = {**_pods_of("kube-system"), "podSelector": {"matchExpressions": [names]}}
    return {
        "to": [pods, _block(_NODE_LOCAL_DNS), _block(_METADATA_SERVER)],
        "ports": [{"protocol": protocol, "port": _DNS} for protocol in ("UDP", "TCP")],
    }


def _services_of_google(network: Network) -> Manifest:
    """Return the rule for Google's APIs, whose addresses change, and for the API server, whose address is in the range
    of the nodes.

    The address of a Service is replaced by that of a pod before a policy is evaluated, so the range of the pods covers
    both.
    """
    block = {"cidr": _EVERYWHERE, "except": [network.pods, network.second_nodes]}
    return {"to": [{"ipBlock": block}], "ports": [{"protocol": "TCP", "port": _HTTPS}]}


def _block(cidr: str) -> Manifest:
    return {"ipBlock": {"cidr": cidr}}
