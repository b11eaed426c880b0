"""What the members of a team may do in the cluster.

Owns the role of a team's namespace, its binding, and the bounds on what it holds. Pure. It says
nothing of Google Cloud: a role there, such as `roles/container.developer`, adds its own rights in every namespace.

A member's only way to a pod is a JobSet, which Kueue admits to the team's own queue, and whose pods the
namespace's Pod Security level and network policy bind. Who may make pods may use what the namespace has for
pods: the trainer's identity and the secrets of the team's jobs.
"""

from collections.abc import Mapping, Sequence

from infra.names import Manifest
from infra.settings.schema import Members

NAME = "members"

_PODS_BESIDE = 100
"""Pods of a team that need no TPU host, such as heads of jobs that run by Pathways."""
_SECRETS_BESIDE = 100
"""Secrets that belong to no call of a function."""
_MOST_JOBS, _MOST_CALLS = 10_000, 2_000
"""A JobSet has a Job for each slice, and keeps them until it is removed, a day after its end. There is no quota for
JobSets: the API server would refuse all of them until the controller manager has found the new kind."""

_SEE = ("get", "list", "watch")
_GRANTED: Sequence[tuple[str, Sequence[str], Sequence[str]]] = (
    ("jobset.x-k8s.io", ("jobsets",), ("create", "delete", *_SEE)),
    ("", ("secrets",), ("create",)),
    ("batch", ("jobs",), _SEE),
    ("", ("pods", "events"), _SEE),
    ("events.k8s.io", ("events",), _SEE),
    ("", ("pods/log",), ("get",)),
    ("kueue.x-k8s.io", ("workloads", "localqueues"), _SEE),
    ("kueue.x-k8s.io", ("workloads",), ("patch",)),
)
"""API group, resources and verbs. A change of a JobSet is not among them: its pods' identity and priority
are decided when it is made. Of a Workload it is to suspend a job and to resume it: `infra.admission_policies` refuses
the rest. Nor are commands in pods: a colleague's trainer is not to be touched. A Secret is for the key of a call: it
can be made, and not read or changed; `infra.admission_policies` refuses other types."""


def role(namespace: str) -> Manifest:
    """Submit, see, suspend and delete jobs; read what explains them."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": NAME, "namespace": namespace},
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
        "metadata": {"name": NAME, "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME},
        "subjects": subjects(members),
    }


def no_pod_priority(namespace: str) -> Manifest:
    """No pod of the namespace has a priority of the scheduler.

    Such a pod would push other teams' pods off their hosts, whatever their queues say. Kueue counts that priority
    before there is a pod, so `infra.admission_policies` refuses the job as well. A PriorityClass that is the
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
        {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": address}
        for kind, addresses in kinds.items()
        for address in addresses
    ]
