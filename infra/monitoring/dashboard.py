"""The dashboard that Grafana shows of a stack's jobs and queues.

Owns panels and their queries, and the ConfigMap by which Grafana's sidecar finds them
(https://github.com/grafana/helm-charts/tree/main/charts/grafana#sidecar-for-dashboards). Pure; Grafana itself is no
part of the stack.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from infra.monitoring.collection import JOBSET_LABEL
from infra.names import Manifest

SIDECAR_LABEL = {"grafana_dashboard": "1"}
"""What the sidecar of Grafana's chart looks for unless it is told otherwise."""
TITLE = "TPU multislice training"

_COLUMNS = 3
_WIDTH, _HEIGHT = 8, 8
"""Of a panel, in units of which a row of Grafana has 24."""
_SCHEMA_VERSION = 39
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_JOB = f'namespace=~"$namespace", {JOBSET_LABEL}=~"$jobset"'


@dataclass(frozen=True)
class Query:
    """One query of a panel and the name of its curves."""

    expression: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """One picture."""

    title: str
    unit: str
    """As Grafana calls units; `short` for plain numbers."""
    queries: tuple[Query, ...]
    stacked: bool = False


def _of_job(name: str) -> str:
    return f"max by (namespace, {JOBSET_LABEL}) ({name}{{{_JOB}}})"


_ONE_JOB = f"{{{{namespace}}}}/{{{{{JOBSET_LABEL}}}}}"
_ONE_HOST = "slice {{slice}} host {{host}}"
_SPENT = f"sum by (cause) (rate(trainer_seconds_total{{{_JOB}}}[15m]))"
_WAIT = "histogram_quantile(0.9, sum by (le, cluster_queue) (rate(kueue_admission_wait_time_seconds_bucket[1h])))"
_USED = (
    "sum by (cluster_queue, flavor) (kueue_cluster_queue_resource_usage)"
    " / sum by (cluster_queue, flavor) (kueue_cluster_queue_nominal_quota)"
)

PANELS = (
    Panel(
        "Loss",
        "short",
        (Query(_of_job("trainer_loss"), _ONE_JOB), Query(_of_job("trainer_held_out_loss"), f"{_ONE_JOB} held out")),
    ),
    Panel("Steps done", "short", (Query(_of_job("trainer_step"), _ONE_JOB),)),
    Panel("Tokens per second", "short", (Query(_of_job("trainer_tokens_per_second"), _ONE_JOB),)),
    Panel("Where the time goes", "percentunit", (Query(f"{_SPENT} / scalar(sum({_SPENT}))", "{{cause}}"),), True),
    Panel("Share of the rated FLOP/s", "percentunit", (Query(_of_job("trainer_mfu_ratio"), _ONE_JOB),)),
    Panel(
        "Unsaved work",
        "s",
        (
            Query(f"time() - {_of_job('trainer_safe_time_seconds')}", _ONE_JOB),
            Query(_of_job("trainer_save_interval_seconds"), f"{_ONE_JOB} asked for"),
        ),
    ),
    Panel(
        "Time that hosts keep the others waiting",
        "percentunit",
        (
            Query(
                f"rate(trainer_host_seconds_total{{{_JOB}}}[15m]) / rate(trainer_step_seconds_total{{{_JOB}}}[15m])",
                _ONE_HOST,
            ),
        ),
    ),
    Panel(
        "Memory of the fullest device",
        "bytes",
        (
            Query(f"trainer_hbm_used_bytes{{{_JOB}}}", _ONE_HOST),
            Query(_of_job("trainer_hbm_peak_bytes"), f"{_ONE_JOB} at most"),
        ),
    ),
    Panel(
        "Restarts and skipped steps",
        "short",
        (
            Query(_of_job("trainer_restarts"), f"{_ONE_JOB} restarts"),
            Query(_of_job("trainer_skipped_steps_total"), f"{_ONE_JOB} skipped"),
            Query(_of_job("trainer_rollbacks_total"), f"{_ONE_JOB} rollbacks"),
        ),
    ),
    Panel("How starts ended", "short", (Query(f"max by ({JOBSET_LABEL}, code) (trainer_ends{{{_JOB}}})", "{{code}}"),)),
    Panel(
        "Slices",
        "short",
        (
            Query(_of_job("trainer_slices"), _ONE_JOB),
            Query(_of_job("trainer_asked_slices"), f"{_ONE_JOB} asked for"),
        ),
    ),
    Panel("Price per hour", "currencyUSD", (Query(_of_job("trainer_usd_per_hour"), _ONE_JOB),)),
    Panel(
        "Jobs that wait",
        "short",
        (Query("sum by (cluster_queue, status) (kueue_pending_workloads)", "{{cluster_queue}} {{status}}"),),
    ),
    Panel(
        "Jobs that run",
        "short",
        (Query("sum by (cluster_queue) (kueue_admitted_active_workloads)", "{{cluster_queue}}"),),
    ),
    Panel("Quota in use", "percentunit", (Query(_USED, "{{cluster_queue}} {{flavor}}"),)),
    Panel(
        "Evictions in an hour",
        "short",
        (
            Query(
                "sum by (cluster_queue, reason) (increase(kueue_evicted_workloads_total[1h]))",
                "{{cluster_queue}} {{reason}}",
            ),
        ),
    ),
    Panel("Longest wait of nine jobs in ten", "s", (Query(_WAIT, "{{cluster_queue}}"),)),
    Panel(
        "Jobs that ended",
        "short",
        (Query("sum(jobset_completed_total)", "completed"), Query("sum(jobset_failed_total)", "failed")),
    ),
)


def config_map(namespace: str) -> Manifest:
    """The dashboard where Grafana's sidecar looks for it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "multislice-dashboard", "namespace": namespace, "labels": SIDECAR_LABEL},
        "data": {"multislice.json": json.dumps(dashboard(), indent=1)},
    }


def dashboard() -> Manifest:
    """The dashboard in Grafana's own terms."""
    return {
        "uid": "tpu-multislice",
        "title": TITLE,
        "tags": ["tpu"],
        "schemaVersion": _SCHEMA_VERSION,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_source_variable(), *_job_variables()]},
        "panels": [_panel(number, panel) for number, panel in enumerate(PANELS)],
    }


def _source_variable() -> Manifest:
    return {"name": "datasource", "label": "Source", "type": "datasource", "query": "prometheus"}


def _job_variables() -> Iterable[Manifest]:
    for name, label, within in (
        ("namespace", "Namespace", ""),
        ("jobset", "Job", '{namespace=~"$namespace"}'),
    ):
        yield {
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
    kind: Literal["timeseries"] = "timeseries"
    stacking = {"mode": "normal" if panel.stacked else "none"}
    return {
        "id": number + 1,
        "title": panel.title,
        "type": kind,
        "datasource": _SOURCE,
        "gridPos": {
            "x": number % _COLUMNS * _WIDTH,
            "y": number // _COLUMNS * _HEIGHT,
            "w": _WIDTH,
            "h": _HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": panel.unit, "custom": {"stacking": stacking}}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": query.expression, "legendFormat": query.legend}
            for index, query in enumerate(panel.queries)
        ],
    }
