"""Which pods Managed Prometheus asks for metrics, and by what right.

Owns the PodMonitorings of the teams' trainers and of the two controllers, and the identity by which collectors read
the controllers' metrics. Pure; the trainer's numbers are those of `workloads.training.exposition`.
"""

from infra.names import COLLECTORS_NAMESPACE, METRICS_PORT_NAME, Manifest

API_VERSION = "monitoring.googleapis.com/v1"
TRAINER = "trainer"
"""Name of the trainers' PodMonitoring, which Prometheus calls their job."""
JOBSET_LABEL, SLICE_LABEL, HOST_LABEL = "jobset", "slice", "host"
"""What a trainer's numbers are told apart by, taken from its pod: JobSet, slice of the job, host of the slice."""
_COLLECTOR = "collector"
_READER = "metrics-reader"
_TOKEN = f"{_READER}-token"
_RBAC = "rbac.authorization.k8s.io"
_INTERVAL = "30s"
_PODS_OF_CONTROLLERS = {
    "jobset": {"app.kubernetes.io/name": "jobset", "app.kubernetes.io/component": "controller"},
    "kueue": {"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"},
}
"""By controller, the labels that its chart gives its pods."""


def of_trainers(namespace: str) -> Manifest:
    """All pods of JobSets in a team's namespace that have a port for metrics."""
    labels = {
        "jobset.sigs.k8s.io/jobset-name": JOBSET_LABEL,
        "jobset.sigs.k8s.io/job-index": SLICE_LABEL,
        "batch.kubernetes.io/job-completion-index": HOST_LABEL,
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "PodMonitoring",
        "metadata": {"name": TRAINER, "namespace": namespace},
        "spec": {
            "selector": {"matchExpressions": [{"key": next(iter(labels)), "operator": "Exists"}]},
            "endpoints": [{"port": METRICS_PORT_NAME, "interval": _INTERVAL}],
            "targetLabels": {
                "metadata": ["node", "pod"],
                "fromPod": [{"from": name, "to": label} for name, label in labels.items()],
            },
        },
    }


def of_controller(name: str, namespace: str) -> dict[str, Manifest]:
    """The metrics of JobSet or Kueue and what reading them takes, by what each object is.

    Both answer by TLS alone, with a certificate of their own making, and only those who show the token of an account
    that may read metrics (https://cloud.google.com/kubernetes-engine/docs/tutorials/kueue-cohort). Collectors are
    given such a token as a Secret, which they alone may read and which opens nothing else.
    """
    return {
        "account": _account(namespace),
        "token": _token(namespace),
        "reader": _reader(name, namespace),
        "token-role": _token_role(namespace),
        "token-role-binding": _token_role_binding(namespace),
        "metrics": _controller_monitoring(name, namespace),
    }


def _account(namespace: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": _READER, "namespace": namespace},
        "automountServiceAccountToken": False,
    }


def _token(namespace: str) -> Manifest:
    """Kubernetes writes the token into it; PodMonitoring has no other way to name one."""
    annotations = {"kubernetes.io/service-account.name": _READER}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": _TOKEN, "namespace": namespace, "annotations": annotations},
        "type": "kubernetes.io/service-account-token",
    }


def _reader(name: str, namespace: str) -> Manifest:
    """The account has the role that the chart makes for readers of its metrics."""
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{name}-{_READER}-of-collectors"},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": f"{name}-{_READER}"},
        "subjects": [{"kind": "ServiceAccount", "name": _READER, "namespace": namespace}],
    }


def _token_role(namespace: str) -> Manifest:
    rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [_TOKEN], "verbs": ["get", "list", "watch"]}
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "Role",
        "metadata": {"name": _TOKEN, "namespace": namespace},
        "rules": [rule],
    }


def _token_role_binding(namespace: str) -> Manifest:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": _TOKEN, "namespace": namespace},
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": _TOKEN},
        "subjects": [{"kind": "ServiceAccount", "name": _COLLECTOR, "namespace": COLLECTORS_NAMESPACE}],
    }


def _controller_monitoring(name: str, namespace: str) -> Manifest:
    endpoint = {
        "port": METRICS_PORT_NAME,
        "interval": _INTERVAL,
        "scheme": "https",
        "tls": {"insecureSkipVerify": True},
        "authorization": {"type": "Bearer", "credentials": {"secret": {"name": _TOKEN, "key": "token"}}},
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "PodMonitoring",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": _PODS_OF_CONTROLLERS[name]},
            "endpoints": [endpoint],
            # Said, or GKE would fill it in.
            "targetLabels": {"metadata": ["pod"]},
        },
    }
