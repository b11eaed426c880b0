"""The alerts as rules that Managed Prometheus evaluates.

Owns the ClusterRules, which see the metrics of their own cluster alone. Pure; whom an alert reaches is the business
of the cluster's Alertmanager, see `docs/monitoring.md`.
"""

from collections.abc import Mapping

from infra.monitoring.alerts import OF_QUEUES, OF_TRAINER, Alert
from infra.monitoring.collection import API_VERSION
from infra.names import Manifest

DOCUMENT = "docs/monitoring.md"
"""Has a section for each alert."""

_INTERVAL = "30s"


def rules() -> dict[str, Manifest]:
    """The ClusterRules, by what they are about."""
    return {"trainer": _cluster_rules("trainer", OF_TRAINER), "queues": _cluster_rules("queues", OF_QUEUES)}


def runbook(alert: Alert) -> str:
    """Where the alert is explained, from the root of the repository."""
    return f"{DOCUMENT}#{alert.name.lower()}"


def groups(name: str, alerts: tuple[Alert, ...]) -> list[Manifest]:
    """Rule groups in the terms of Prometheus."""
    return [{"name": name, "interval": _INTERVAL, "rules": [_rule(alert) for alert in alerts]}]


def _cluster_rules(name: str, alerts: tuple[Alert, ...]) -> Manifest:
    return {
        "apiVersion": API_VERSION,
        "kind": "ClusterRules",
        "metadata": {"name": f"multislice-{name}"},
        "spec": {"groups": groups(name, alerts)},
    }


def _rule(alert: Alert) -> Mapping[str, object]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.lasts,
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "description": alert.action, "runbook": runbook(alert)},
    }
