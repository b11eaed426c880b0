"""docs/how-to/monitoring.md has the alerts that the program declares."""

import re

from infra.monitoring import DOCUMENT, load_declared, runbook
from tests.documents.monitoring_reference import with_alerts
from tests.documents.pages import ROOT, hold

WRITTEN = ROOT / DOCUMENT


def test_alerts_are_those_that_are_declared() -> None:
    hold(WRITTEN, with_alerts(WRITTEN.read_text()))


def test_every_runbook_leads_to_a_section() -> None:
    headings = {f"#{heading.lower()}" for heading in re.findall(r"^### (\w+)$", WRITTEN.read_text(), re.MULTILINE)}
    assert {runbook(alert).removeprefix(DOCUMENT) for alert in load_declared().every_alert} == headings
