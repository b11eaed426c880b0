import json
import re
from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

import pytest

from infra.monitoring import JOBSET, SIDECAR_LABEL, dashboard, dashboard_config, load_declared

_IN_PLACE = {"__rate_interval": "5m", "__interval": "1m", "__range": "6h", "namespace": "(one|two)", "jobset": ".+"}
"""What Grafana writes for variables: spans of time for its own, regular expressions for those of the dashboard."""


def panels(queries: Mapping[str, str]) -> list[Mapping[str, object]]:
    """Recording rules with the queries as Grafana asks them, each by its name, something in place of each variable."""
    recorded = [
        {"record": name, "expr": re.sub(r"\$\{?(\w+)\}?", lambda found: _IN_PLACE[found[1]], query)}
        for name, query in queries.items()
    ]
    return [{"name": "panels", "rules": recorded}]


def test_grafanas_sidecar_finds_it() -> None:
    manifest: Any = dashboard_config("somewhere")
    assert manifest["metadata"]["labels"] == SIDECAR_LABEL == {"grafana_dashboard": "1"}
    ((name, text),) = manifest["data"].items()
    assert name.endswith(".json")
    assert json.loads(text) == json.loads(json.dumps(dashboard()))


def test_panels_fill_the_24_units_of_a_row() -> None:
    shown: Any = dashboard()["panels"]
    assert len({panel["id"] for panel in shown}) == len(shown) == len(load_declared().panels)
    places = [panel["gridPos"] for panel in shown]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    assert not any(_overlap(one, other) for one, other in combinations(places, 2))


def test_queries_use_the_variables_that_there_are() -> None:
    variables: Any = dashboard()["templating"]
    names = {variable["name"] for variable in variables["list"]}
    assert names == {"datasource", "namespace", JOBSET}
    queries = " ".join(query.expression for panel in load_declared().panels for query in panel.queries)
    assert all(f"${name}" in queries for name in names - {"datasource"})


def test_prometheus_itself_can_read_every_query(promtool_says: Callable[..., str]) -> None:
    shown: Any = dashboard()["panels"]
    queries = {f"panel_{each['id']}:{query['refId']}": query["expr"] for each in shown for query in each["targets"]}
    assert len(queries) == sum(len(panel.queries) for panel in load_declared().panels)
    assert promtool_says(panels(queries)) == ""


@pytest.mark.parametrize(
    "broken", ["sum by (cause) (trainer_loss", "rate(trainer_loss)", 'trainer_loss{namespace=~"$namespace}']
)
def test_an_invalid_query_would_be_detected(promtool_says: Callable[..., str], broken: str) -> None:
    assert '"panel_1:A"' in promtool_says(panels({"panel_1:A": broken}))


def _overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return abs(one["x"] - other["x"]) < one["w"] and abs(one["y"] - other["y"]) < one["h"]
