import re
from collections.abc import Callable, Mapping
from typing import Any

from infra.monitoring import dashboard, load_declared

_IN_PLACE = {"__rate_interval": "5m", "__interval": "1m", "__range": "6h", "namespace": "(one|two)", "jobset": ".+"}
"""What Grafana writes for variables: spans of time for its own, regular expressions for those of the dashboard."""


def panels(queries: Mapping[str, str]) -> list[Mapping[str, object]]:
    """Recording rules with the queries as Grafana asks them, each by its name, something in place of each variable."""
    recorded = [
        {"record": name, "expr": re.sub(r"\$\{?(\w+)\}?", lambda found: _IN_PLACE[found[1]], query)}
        for name, query in queries.items()
    ]
    return [{"name": "panels", "rules": recorded}]


def test_prometheus_itself_can_read_every_query(promtool_says: Callable[..., str]) -> None:
    shown: Any = dashboard()["panels"]
    queries = {f"panel_{each['id']}:{query['refId']}": query["expr"] for each in shown for query in each["targets"]}
    assert len(queries) == sum(len(panel.queries) for panel in load_declared().panels)
    assert promtool_says(panels(queries)) == ""
