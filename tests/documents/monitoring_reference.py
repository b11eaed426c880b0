"""Renders the alerts in docs/how-to/monitoring.md from their declarations."""

import re

from infra.monitoring import VALUE, Alert, load_declared
from tests.made_part import with_part

_BEGIN = "<!-- alerts: made by tests/documents/monitoring_reference.py -->\n"
_END = "<!-- end of alerts -->\n"


def with_alerts(document: str) -> str:
    """Return the document with the declared alerts."""
    return with_part(document, _BEGIN, "\n" + "\n".join(map(_section, load_declared().every_alert)) + "\n", _END)


def _section(alert: Alert) -> str:
    summary, action = map(_with_names, (alert.summary, alert.action))
    delay = "Fires at once" if alert.lasts == "0m" else f"Fires after {alert.lasts}"
    return f"### {alert.name}\n\n{summary.replace(VALUE, 'N')} {delay}, as a {alert.severity}.\n\n{action}\n"


def _with_names(text: str) -> str:
    """Return the text of an alert, with label names in capitals in place of their values."""
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: found[1].upper(), text)
