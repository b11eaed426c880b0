"""Monitoring of a stack: the pods whose metrics Managed Prometheus collects, the alerts, and the Grafana dashboard.

`monitoring.yaml` contains the alerts and the panels. Grafana itself is not part of the stack. Notifications of alerts
are configured in the cluster's Alertmanager; see `docs/how-to/monitoring.md`.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

import pulumi
import yaml

from infra.objects import KubernetesObject
from infra.stack.manifests import Manifest, manifest, mark_ours, role_binding, service_account
from infra.stack.names import (
    COLLECTORS_NAMESPACE,
    COMPLETION_INDEX_LABEL,
    JOB_INDEX_LABEL,
    JOBSET_LABEL,
    JOBSET_NAMESPACE,
    KUEUE_NAMESPACE,
    METRICS_PORT_NAME,
    RBAC_GROUP,
)
from infra.stack.pods import admitted_pods
from workloads.spec import Spec

API_VERSION = "monitoring.googleapis.com/v1"
DOCUMENT = "docs/how-to/monitoring.md"
"""Page of the documentation with a section for each alert."""
NAMESPACE = "multislice-monitoring"
"""Namespace of the dashboard. It contains no pods."""
SIDECAR_LABEL = {"grafana_dashboard": "1"}
"""Label by which the sidecar of Grafana's Helm chart finds a dashboard by default
(https://github.com/grafana/helm-charts/tree/main/charts/grafana#sidecar-for-dashboards)."""
TITLE = "TPU multislice training"
VALUE = '{{ printf "%.0f" $value }}'
"""In a summary, the number that the alert is about. An increase over a window may be fractional."""

TRAINER = "trainer"
"""Name of the trainers' PodMonitoring. In Prometheus it is the value of the label `job`."""
JOBSET, SLICE, HOST = "jobset", "slice", "host"
"""Labels of the trainer's metrics, taken from its pod: JobSet, slice of the job, host of the slice."""

_INTERVAL = "30s"
_COLLECTOR = "collector"
_READER = "metrics-reader"
_TOKEN = f"{_READER}-token"
_CONTROLLERS = {
    "jobset": (JOBSET_NAMESPACE, {"app.kubernetes.io/name": "jobset", "app.kubernetes.io/component": "controller"}),
    "kueue": (KUEUE_NAMESPACE, {"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"}),
}
"""Namespace of each controller, and the labels that its chart gives its pods."""
_COLUMNS, _WIDTH, _HEIGHT = 3, 8, 8
"""Number of panels in a row, and the size of one. A row of Grafana is 24 units wide."""
_SCHEMA_VERSION = 39
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


class Alert(Spec):
    """An alert: a condition, and what people need to know when it is true."""

    name: str
    expression: str
    lasts: str
    """How long the condition must be true before the alert fires, as Prometheus writes durations."""
    severity: Literal["page", "ticket"]
    """`page`: chips are billed and idle. `ticket`: look at it in working hours."""
    summary: str
    """One sentence, with `{{ $labels.NAME }}` for the affected object and `VALUE` for a number."""
    action: str
    """The first thing to do."""


class Query(Spec):
    """One query of a panel, and the name of its curves."""

    expression: str
    legend: str


class Panel(Spec):
    """One chart of the dashboard."""

    title: str
    unit: str
    """Grafana's name of the unit; `short` for plain numbers."""
    queries: tuple[Query, ...]
    stacked: bool = False


class Declared(Spec):
    """The content of `monitoring.yaml`."""

    alerts: Mapping[str, tuple[Alert, ...]]
    """Alerts by subject."""
    panels: tuple[Panel, ...]

    @property
    def every_alert(self) -> tuple[Alert, ...]:
        return tuple(alert for alerts in self.alerts.values() for alert in alerts)


@cache
def load_declared() -> Declared:
    """Return the alerts and panels of every stack."""
    return Declared.model_validate(yaml.safe_load((files(__package__) / "monitoring.yaml").read_text()))


@dataclass(frozen=True)
class MonitoringArgs:
    """Where the trainers run."""

    namespaces: Sequence[str]
    queues: pulumi.Resource
    """The component that creates these namespaces."""
    controllers: Collection[str]
    """Controllers that the stack installs. Those of others are watched by their owners."""
    prefix: str
    """Prefix of names in an existing cluster; empty in a cluster of the stack."""


class Monitoring(pulumi.ComponentResource):
    """PodMonitorings of trainers and controllers, the alerts, and the dashboard."""

    def __init__(self, name: str, args: MonitoringArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tpu-multislice:infra:Monitoring", name, None, opts)
        self._prefix = name.removesuffix("monitoring")
        for namespace in args.namespaces:
            self._declare(f"trainer-metrics-{namespace}", trainer_monitoring(namespace), [args.queues])
        for controller in (name for name in _CONTROLLERS if name in args.controllers):
            before: list[pulumi.Resource] = []
            # In this order: a token is created for an account, and the metrics are read with the token.
            for about, rendered in controller_monitoring(controller).items():
                before.append(self._declare(f"{controller}-{about}", rendered, before[-1:]))
        for about, rendered in alert_rules(args.prefix).items():
            self._declare(f"alerts-{about}", rendered)
        namespace = f"{args.prefix}{NAMESPACE}"
        rendered = mark_ours(manifest("v1", "Namespace", namespace, labels=admitted_pods("restricted")), args.prefix)
        place = self._declare("monitoring", rendered)
        self._declare("dashboard", dashboard_config(namespace), [place])
        self.register_outputs({})

    def _declare(
        self, name: str, rendered: Mapping[str, object], after: Sequence[pulumi.Resource] = ()
    ) -> KubernetesObject:
        options = pulumi.ResourceOptions(parent=self, depends_on=list(after))
        return KubernetesObject(f"{self._prefix}{name}", mark_ours(rendered), options)


def trainer_monitoring(namespace: str) -> Manifest:
    """Return the PodMonitoring of all pods of JobSets in a team's namespace that have a port for metrics."""
    labels = {JOBSET_LABEL: JOBSET, JOB_INDEX_LABEL: SLICE, COMPLETION_INDEX_LABEL: HOST}
    spec: Manifest = {
        "selector": {"matchExpressions": [{"key": JOBSET_LABEL, "operator": "Exists"}]},
        "endpoints": [{"port": METRICS_PORT_NAME, "interval": _INTERVAL}],
        "targetLabels": {
            "metadata": ["node", "pod"],
            "fromPod": [{"from": name, "to": label} for name, label in labels.items()],
        },
    }
    return manifest(API_VERSION, "PodMonitoring", TRAINER, namespace, spec=spec)


def controller_monitoring(name: str) -> dict[str, Manifest]:
    """Return the objects needed to read the metrics of JobSet or Kueue, by kind of object.

    Both controllers serve metrics over TLS, with a self-signed certificate, and only to clients with the token of an
    account that may read metrics (https://cloud.google.com/kubernetes-engine/docs/tutorials/kueue-cohort). The
    collectors get such a token in a Secret that only they may read. The token grants no other permission.
    """
    namespace, pods = _CONTROLLERS[name]
    reader, collector = service_account(_READER, namespace), service_account(_COLLECTOR, COLLECTORS_NAMESPACE)
    # The chart creates a role of this name for readers of its metrics.
    role = f"{name}-{_READER}"
    rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [_TOKEN], "verbs": ["get", "list", "watch"]}
    return {
        "account": manifest("v1", "ServiceAccount", _READER, namespace, automountServiceAccountToken=False),
        # Kubernetes writes the token into it. A PodMonitoring cannot refer to any other kind of token.
        "token": manifest(
            "v1",
            "Secret",
            _TOKEN,
            namespace,
            annotations={"kubernetes.io/service-account.name": _READER},
            type="kubernetes.io/service-account-token",
        ),
        "reader": role_binding(f"{role}-of-collectors", role, [reader]),
        "token-role": manifest(f"{RBAC_GROUP}/v1", "Role", _TOKEN, namespace, rules=[rule]),
        "token-role-binding": role_binding(_TOKEN, _TOKEN, [collector], namespace),
        "metrics": _controller_metrics(name, namespace, pods),
    }


def _controller_metrics(name: str, namespace: str, pods: Mapping[str, str]) -> Manifest:
    endpoint = {
        "port": METRICS_PORT_NAME,
        "interval": _INTERVAL,
        "scheme": "https",
        "tls": {"insecureSkipVerify": True},
        "authorization": {"type": "Bearer", "credentials": {"secret": {"name": _TOKEN, "key": "token"}}},
    }
    spec: Manifest = {
        "selector": {"matchLabels": pods},
        "endpoints": [endpoint],
        # GKE would fill in this value, which would show up as drift.
        "targetLabels": {"metadata": ["pod"]},
    }
    return manifest(API_VERSION, "PodMonitoring", name, namespace, spec=spec)


def alert_rules(prefix: str = "") -> dict[str, Manifest]:
    """Return the ClusterRules by subject. They see only the metrics of their own cluster."""
    return {
        about: manifest(
            API_VERSION, "ClusterRules", f"{prefix}multislice-{about}", spec={"groups": rule_groups(about, alerts)}
        )
        for about, alerts in load_declared().alerts.items()
    }


def rule_groups(name: str, alerts: Iterable[Alert]) -> list[Manifest]:
    """Return the alerts as rule groups of Prometheus."""
    rules = [
        {
            "alert": alert.name,
            "expr": alert.expression,
            "for": alert.lasts,
            "labels": {"severity": alert.severity},
            "annotations": {"summary": alert.summary, "description": alert.action, "runbook": runbook(alert)},
        }
        for alert in alerts
    ]
    return [{"name": name, "interval": _INTERVAL, "rules": rules}]


def runbook(alert: Alert) -> str:
    """Return the documentation of the alert as a path from the root of the repository."""
    return f"{DOCUMENT}#{alert.name.lower()}"


def dashboard_config(namespace: str) -> Manifest:
    """Return the ConfigMap in which Grafana's sidecar finds the dashboard."""
    data = {"multislice.json": json.dumps(dashboard(), indent=1)}
    return manifest("v1", "ConfigMap", "multislice-dashboard", namespace, labels=SIDECAR_LABEL, data=data)


def dashboard() -> Manifest:
    """Return the dashboard in Grafana's format."""
    source = {"name": "datasource", "label": "Source", "type": "datasource", "query": "prometheus"}
    choices = (("namespace", "Namespace", ""), ("jobset", "Job", '{namespace=~"$namespace"}'))
    return {
        "uid": "tpu-multislice",
        "title": TITLE,
        "tags": ["tpu"],
        "schemaVersion": _SCHEMA_VERSION,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source, *(_choice(*choice) for choice in choices)]},
        "panels": [_panel(number, panel) for number, panel in enumerate(load_declared().panels)],
    }


def _choice(name: str, label: str, within: str) -> Manifest:
    """Return a variable of the dashboard, which selects any number of the values of the label `name`."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": f"label_values(trainer_start_time_seconds{within}, {name})",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, panel: Panel) -> Manifest:
    row, column = divmod(number, _COLUMNS)
    stacking = {"mode": "normal" if panel.stacked else "none"}
    return {
        "id": number + 1,
        "title": panel.title,
        "type": "timeseries",
        "datasource": _SOURCE,
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "custom": {"stacking": stacking}}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": query.expression, "legendFormat": query.legend}
            for index, query in enumerate(panel.queries)
        ],
    }
