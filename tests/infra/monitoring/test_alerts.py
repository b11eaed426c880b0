"""Alerts in Prometheus' own engine: each fires on made series and is silent on those of a healthy stack."""

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest

from infra.monitoring import VALUE, Alert, alert_rules, load_declared, rule_groups
from tests.infra.monitoring.series import FIRING, HEALTHY, QUIET, Case, Series
from workloads.training.exposition import FAMILIES, Exposition

by_alert = pytest.mark.parametrize("alert", load_declared().every_alert, ids=lambda alert: alert.name)


def faults_of(promtool: Path, folder: Path, cases: list[Mapping[str, Any]]) -> str:
    """What promtool says of the cases; nothing if all are as expected."""
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": rule_groups("all", load_declared().every_alert)}))
    tests = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": cases}
    (folder / "tests.yaml").write_text(yaml.safe_dump(tests, sort_keys=False))
    command = [promtool, "test", "rules", folder / "tests.yaml"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if found.returncode == 0 else found.stdout + found.stderr


def written(series: Series) -> list[Mapping[str, str]]:
    return [{"series": name, "values": values} for name, values in series.items()]


def case(alert: Alert, given: Case, *, fires: bool) -> Mapping[str, Any]:
    labels = {**given.labels, "severity": alert.severity}
    expected = {"exp_labels": labels, "exp_annotations": annotations(alert, given)} if fires else None
    asked = {"eval_time": given.at, "alertname": alert.name, "exp_alerts": [expected] if expected else []}
    return {"interval": "1m", "input_series": written(given.series), "alert_rule_test": [asked]}


def annotations(alert: Alert, given: Case) -> Mapping[str, str]:
    """As the rule has them, with the values that the case leads to."""
    groups: Any = rule_groups("all", load_declared().every_alert)
    (rule,) = (rule for group in groups for rule in group["rules"] if rule["alert"] == alert.name)
    values = {"TrainerRestarts": "3", "KueueJobWaits": "1", "KueueEvictions": "5"}
    summaries: dict[str, str] = {}
    for name, text in rule["annotations"].items():
        text = text.replace(VALUE, values.get(alert.name, ""))
        summaries[name] = re.sub(r"{{ \$labels\.(\w+) }}", lambda found: given.labels[found[1]], text)
    return summaries


def test_every_alert_has_its_series() -> None:
    assert FIRING.keys() == {alert.name for alert in load_declared().every_alert}
    assert QUIET.keys() <= FIRING.keys()


@pytest.mark.costs(cpu_seconds=8)
def test_each_alert_fires_on_its_series(promtool: Path, tmp_path: Path) -> None:
    cases = [case(alert, FIRING[alert.name], fires=True) for alert in load_declared().every_alert]
    assert faults_of(promtool, tmp_path, cases) == ""


def test_a_healthy_stack_is_silent(promtool: Path, tmp_path: Path) -> None:
    asked = [
        {"eval_time": at, "alertname": alert.name, "exp_alerts": []}
        for alert in load_declared().every_alert
        for at in ("65m", "400m", "850m")
    ]
    healthy = {"interval": "1m", "input_series": written(HEALTHY), "alert_rule_test": asked}
    assert faults_of(promtool, tmp_path, [healthy]) == ""


def test_what_only_looks_bad_is_silent(promtool: Path, tmp_path: Path) -> None:
    alerts = {alert.name: alert for alert in load_declared().every_alert}
    cases = [case(alerts[name], given, fires=False) for name, given in QUIET.items()]
    assert faults_of(promtool, tmp_path, cases) == ""


def test_an_alert_that_does_not_fire_would_be_detected(promtool: Path, tmp_path: Path) -> None:
    (alert,) = (alert for alert in load_declared().every_alert if alert.name == "TrainerSaveTooOld")
    silent = Case(HEALTHY, "65m", {"namespace": "research", "jobset": "tiny"})
    assert "TrainerSaveTooOld" in faults_of(promtool, tmp_path, [case(alert, silent, fires=True)])


def test_prometheus_itself_finds_no_fault_in_rules_and_metrics(promtool: Path, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": rule_groups("all", load_declared().every_alert)}))
    checked = subprocess.run(
        [promtool, "check", "rules", "--lint-fatal", tmp_path / "rules.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stderr) == (0, "")
    numbers = Exposition()
    for family in FAMILIES:
        numbers.set(family, 1.5, "a" if family.label else "")
    text = generate_latest(numbers).decode()
    linted = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (linted.returncode, linted.stderr) == (0, "")


@by_alert
def test_an_alert_says_what_it_is_and_what_to_do(alert: Alert) -> None:
    assert alert.summary.endswith(".")
    assert alert.action.endswith(".")


def test_all_alerts_are_declared_once() -> None:
    manifests: Any = alert_rules().values()
    names = [rule["alert"] for manifest in manifests for group in manifest["spec"]["groups"] for rule in group["rules"]]
    assert sorted(names) == sorted(alert.name for alert in load_declared().every_alert)
    assert json.loads(json.dumps(alert_rules())) == alert_rules()
