"""What the members of a team may do in the cluster, and what its pods reach."""

from collections.abc import Mapping, Sequence

from infra.names import COLLECTOR_LABELS, COLLECTORS_NAMESPACE, JOBSET_GROUP, KUEUE_GROUP, NAMESPACE_LABEL, RBAC_GROUP
from infra.objects import Manifest
from infra.settings.schema import Members, Network
from workloads.spec import METRICS_PORT

MEMBERS = "members"
_PODS_BESIDE = 100
"""Pods of a team that need no TPU host, such as heads of jobs that run by Pathways."""
_SECRETS_BESIDE = 100
"""Secrets that belong to no call of a function."""
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
"""API group, resources and verbs. A change of a JobSet is not among them: its pods' identity and priority
are decided when it is made. Of a Workload it is to suspend a job and to resume it: `infra.borders` refuses
the rest. Nor are commands in pods: a colleague's trainer is not to be touched. A Secret is for the key of a call: it
can be made, and not read or changed; `infra.borders` refuses other types."""


def role(namespace: str) -> Manifest:
    """Submit, see, suspend and delete jobs; read what explains them."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": MEMBERS, "namespace": namespace},
        "rules": [
            {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
            for group, resources, verbs in _GRANTED
        ],
    }


def binding(namespace: str, members: Members) -> Manifest:
    """The members hold the role."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": MEMBERS, "namespace": namespace},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "Role", "name": MEMBERS},
        "subjects": subjects(members),
    }


def no_pod_priority(namespace: str) -> Manifest:
    """No pod of the namespace has a priority of the scheduler.

    Such a pod would push other teams' pods off their hosts, whatever their queues say. Kueue counts that priority
    before there is a pod, so `infra.borders` refuses the job as well. A PriorityClass that is the
    default of the cluster would shut out every pod.
    """
    scope = {"scopeName": "PriorityClass", "operator": "Exists"}
    spec: Manifest = {"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": [scope]}}
    return _quota("no-pod-priority", namespace, spec)


def bounds(namespace: str, hosts: int) -> Manifest:
    """What the namespace may hold, in a cluster with so many TPU hosts: no disks, and pods and Jobs without filling
    the API server's storage. Chips are counted by the team's queue.

    Pods of a job may end while those of its next start begin, so there is room for both.
    """
    hard = {
        "pods": str(2 * hosts + _PODS_BESIDE),
        "count/jobs.batch": str(_MOST_JOBS),
        "count/secrets": str(_MOST_CALLS + _SECRETS_BESIDE),
        "persistentvolumeclaims": "0",
    }
    return _quota("bounds", namespace, {"hard": hard})


def _quota(name: str, namespace: str, spec: Manifest) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def subjects(members: Members) -> list[Mapping[str, str]]:
    """The members as RBAC names them."""
    kinds = {"User": members.users, "Group": members.groups}
    return [
        {"apiGroup": RBAC_GROUP, "kind": kind, "name": address}
        for kind, addresses in kinds.items()
        for address in addresses
    ]


NETWORK_POLICY = "own-namespace"
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
        "metadata": {"name": NETWORK_POLICY, "namespace": namespace},
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
    return {"namespaceSelector": {"matchLabels": {NAMESPACE_LABEL: namespace}}}


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
