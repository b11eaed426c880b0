"""The tables of numbers and the sections of alerts in docs/monitoring.md, made from what declares them."""

import re

from infra.monitoring import VALUE, Alert, load_declared
from workloads.training.exposition import FAMILIES, Family

NUMBERS = ("<!-- numbers: made by tests/documents/monitoring_reference.py -->\n", "<!-- end of numbers -->\n")
ALERTS_OF = ("<!-- alerts: made by tests/documents/monitoring_reference.py -->\n", "<!-- end of alerts -->\n")

_COLUMNS = "| number | kind | meaning |\n|---|---|---|\n"


def with_references(document: str) -> str:
    """The document with numbers and alerts as they are declared."""
    return _with(_with(document, NUMBERS, _numbers()), ALERTS_OF, _alerts())


def _with(document: str, marks: tuple[str, str], text: str) -> str:
    before, _, rest = document.partition(marks[0])
    after = rest.partition(marks[1])[2]
    return f"{before}{marks[0]}{text}{marks[1]}{after}"


def _numbers() -> str:
    every = [family for family in FAMILIES if not family.leader_only]
    leader = [family for family in FAMILIES if family.leader_only]
    return f"\nOf every host:\n\n{_table(every)}\nOf the leader, for the job:\n\n{_table(leader)}\n"


def _table(families: list[Family]) -> str:
    return _COLUMNS + "".join(f"| `{_name(family)}` | {family.kind} | {family.meaning} |\n" for family in families)


def _name(family: Family) -> str:
    return f"{family.name}{{{family.label}}}" if family.label else family.name


def _alerts() -> str:
    return "\n" + "\n".join(map(_section, load_declared().every_alert)) + "\n"


def _section(alert: Alert) -> str:
    summary, action = map(_with_names, (alert.summary, alert.action))
    told = "At once" if alert.lasts == "0m" else f"After {alert.lasts}"
    return (
        f"### {alert.name}\n\n{summary.replace(VALUE, 'N')} {told}, as a {alert.severity}.\n\n{action}\n\n"
        f"```promql\n{alert.expression}\n```\n"
    )


def _with_names(text: str) -> str:
    """What an alert says, a word in capitals where it puts a label's value."""
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: found[1].upper(), text)
