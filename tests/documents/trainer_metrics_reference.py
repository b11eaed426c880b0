"""Renders the metrics that the hosts of a trainer serve, from their declarations."""

from multislice_run.live_metrics import FAMILIES, Family
from tests.documents.pages import MADE

_HEAD = f"""# Trainer metrics

{MADE.format("tests/documents/trainer_metrics_reference.py")}

Metrics that every host of a job serves to Prometheus while it trains ([monitoring](../how-to/monitoring.md)). A value
that is unknown, such as the memory of CPU devices, is left out. The label `cause` is a cause of the
[report](../how-to/metrics.md#goodput-and-dollars), and `code` is the name of an [exit code](exit-codes.md).
"""
_COLUMNS = "| Metric | Type | Meaning |\n|---|---|---|\n"


def reference() -> str:
    """Return the page."""
    every = [family for family in FAMILIES if not family.leader_only]
    leader = [family for family in FAMILIES if family.leader_only]
    return f"{_HEAD}\n## Of every host\n\n{_table(every)}\n## Of the leader, for the whole job\n\n{_table(leader)}"


def _table(families: list[Family]) -> str:
    names = {family: f"{family.name}{{{family.label}}}" if family.label else family.name for family in families}
    return _COLUMNS + "".join(f"| `{name}` | {family.kind} | {family.meaning} |\n" for family, name in names.items())
