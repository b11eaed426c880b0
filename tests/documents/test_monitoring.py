"""docs/monitoring.md says what the program declares and the trainer serves."""

import os
import re
from pathlib import Path

from infra.monitoring.alerts import ALERTS
from infra.monitoring.collection import COLLECTORS_NAMESPACE
from infra.monitoring.component import NAMESPACE
from infra.monitoring.dashboard import SIDECAR_LABEL, config_map
from infra.monitoring.rules import DOCUMENT, runbook
from infra.programs import METRICS_PORT_NAME
from tests.documents.monitoring_reference import with_references
from workloads.spec import METRICS_PORT
from workloads.training.exporter import PATH

ROOT = Path(__file__).parents[2]
WRITTEN = ROOT / DOCUMENT


def test_numbers_and_alerts_are_those_that_are_declared() -> None:
    if os.environ.get("UPDATE_GOLDEN") == "1":
        WRITTEN.write_text(with_references(WRITTEN.read_text()))
    assert WRITTEN.read_text() == with_references(WRITTEN.read_text())


def test_every_runbook_leads_to_a_section() -> None:
    headings = {f"#{heading.lower()}" for heading in re.findall(r"^### (\w+)$", WRITTEN.read_text(), re.MULTILINE)}
    assert {runbook(alert).removeprefix(DOCUMENT) for alert in ALERTS} == headings


def test_ports_names_and_labels_are_as_written() -> None:
    text = WRITTEN.read_text()
    assert f"port {METRICS_PORT}, path `{PATH}`" in text
    assert f"a port with the name `{METRICS_PORT_NAME}`" in text
    assert f"`multislice-dashboard` in the namespace `{NAMESPACE}`" in text
    assert config_map(NAMESPACE)["metadata"] == {
        "name": "multislice-dashboard",
        "namespace": NAMESPACE,
        "labels": SIDECAR_LABEL,
    }
    ((label, value),) = SIDECAR_LABEL.items()
    assert f'`{label}: "{value}"`' in text
    assert all(f"`{severity}`" in text for severity in {alert.severity for alert in ALERTS})


def test_collectors_are_where_the_security_document_says() -> None:
    assert f"`{COLLECTORS_NAMESPACE}`" in (ROOT / "docs" / "security.md").read_text()
