"""Alerts in Prometheus' own engine: each fires on made series and is silent on those of a healthy stack."""

import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from infra.monitoring import VALUE, Alert, load_declared, rule_groups
from multislice_run.live_metrics import FAMILIES, Exposition
from tests.infra.monitoring.series import FIRING, HEALTHY, QUIET, Case, Series

ALERTS = load_declared().every_alert
GROUPS: Any = rule_groups("all", ALERTS)


def written(series: Series) -> list[Mapping[str, str]]:
    return [{"series": name, "values": values} for name, values in series.items()]


def case(alert: Alert, given: Case, *, fires: bool) -> Mapping[str, Any]:
    labels = {**given.labels, "severity": alert.severity}
    expected = {"exp_labels": labels, "exp_annotations": annotations(alert, given)} if fires else None
    asked = {"eval_time": given.at, "alertname": alert.name, "exp_alerts": [expected] if expected else []}
    return {"interval": "1m", "input_series": written(given.series), "alert_rule_test": [asked]}


def annotations(alert: Alert, given: Case) -> Mapping[str, str]:
    """As the rule has them, with the values that the case leads to."""
    (rule,) = (rule for group in GROUPS for rule in group["rules"] if rule["alert"] == alert.name)
    values = {"TrainerRestarts": "3", "TrainerSliceMissing": "1", "KueueJobWaits": "1", "KueueEvictions": "5"}
    summaries: dict[str, str] = {}
    for name, text in rule["annotations"].items():
        text = text.replace(VALUE, values.get(alert.name, ""))
        summaries[name] = re.sub(r"{{ \$labels\.(\w+) }}", lambda found: given.labels[found[1]], text)
    return summaries


def test_every_alert_has_its_series() -> None:
    assert FIRING.keys() == {alert.name for alert in ALERTS}
    assert QUIET.keys() <= FIRING.keys()


@pytest.mark.costs(cpu_seconds=8)
def test_each_alert_fires_on_its_series(promtool_says: Callable[..., str]) -> None:
    cases = [case(alert, FIRING[alert.name], fires=True) for alert in ALERTS]
    assert promtool_says(GROUPS, cases) == ""


def test_a_healthy_stack_is_silent(promtool_says: Callable[..., str]) -> None:
    asked = [
        {"eval_time": at, "alertname": alert.name, "exp_alerts": []}
        for alert in ALERTS
        for at in ("65m", "400m", "850m")
    ]
    healthy = {"interval": "1m", "input_series": written(HEALTHY), "alert_rule_test": asked}
    assert promtool_says(GROUPS, [healthy]) == ""


def test_what_only_looks_bad_is_silent(promtool_says: Callable[..., str]) -> None:
    alerts = {alert.name: alert for alert in ALERTS}
    cases = [case(alerts[name], given, fires=False) for name, given in QUIET.items()]
    assert promtool_says(GROUPS, cases) == ""


def test_prometheus_itself_finds_no_fault_in_rules_and_metrics(
    promtool: Path, promtool_says: Callable[..., str]
) -> None:
    assert promtool_says(GROUPS) == ""
    numbers = Exposition()
    for family in FAMILIES:
        numbers.set(family, 1.5, "a" if family.label else "")
    text = generate_latest(numbers).decode()
    linted = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (linted.returncode, linted.stderr) == (0, "")
