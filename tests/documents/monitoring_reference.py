"""Renders the metrics and alerts in docs/how-to/monitoring.md from their declarations."""

import re

from infra.monitoring import VALUE, Alert, load_declared
from multislice_run.exposition import FAMILIES, Family
from tests.made_part import with_part

NUMBERS = ("<!-- numbers: made by tests/documents/monitoring_reference.py -->\n", "<!-- end of numbers -->\n")
ALERTS_OF = ("<!-- alerts: made by tests/documents/monitoring_reference.py -->\n", "<!-- end of alerts -->\n")

_COLUMNS = "| Metric | Type | Meaning |\n|---|---|---|\n"


def with_references(document: str) -> str:
    """Return the document with the declared metrics and alerts."""
    with_numbers = with_part(document, NUMBERS[0], _numbers(), NUMBERS[1])
    alerts = "\n" + "\n".join(map(_section, load_declared().every_alert)) + "\n"
    return with_part(with_numbers, ALERTS_OF[0], alerts, ALERTS_OF[1])


def _numbers() -> str:
    every = [family for family in FAMILIES if not family.leader_only]
    leader = [family for family in FAMILIES if family.leader_only]
    return (
        f"\nEvery host exports:\n\n{_table(every)}\nOnly the leader exports, for the whole job:\n\n{_table(leader)}\n"
    )


def _table(families: list[Family]) -> str:
    names = {family: f"{family.name}{{{family.label}}}" if family.label else family.name for family in families}
    return _COLUMNS + "".join(f"| `{name}` | {family.kind} | {family.meaning} |\n" for family, name in names.items())


def _section(alert: Alert) -> str:
    summary, action = map(_with_names, (alert.summary, alert.action))
    delay = "Fires at once" if alert.lasts == "0m" else f"Fires after {alert.lasts}"
    return (
        f"### {alert.name}\n\n{summary.replace(VALUE, 'N')} {delay}, as a {alert.severity}.\n\n{action}\n\n"
        f"```promql\n{alert.expression}\n```\n"
    )


def _with_names(text: str) -> str:
    """Return the text of an alert, with label names in capitals in place of their values."""
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: found[1].upper(), text)
