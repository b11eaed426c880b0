import json
import re
import subprocess
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.monitoring import JOBSET, SIDECAR_LABEL, dashboard, dashboard_config, load_declared

_IN_PLACE = {"__rate_interval": "5m", "__interval": "1m", "__range": "6h", "namespace": "(one|two)", "jobset": ".+"}
"""What Grafana writes for variables: spans of time for its own, regular expressions for those of the dashboard."""


def faults_of(promtool: Path, folder: Path, queries: Mapping[str, str]) -> str:
    """What promtool says of recording rules with these queries, each by its name; nothing if it can read them all."""
    recorded = [{"record": name, "expr": in_place(query)} for name, query in queries.items()]
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    command = [promtool, "check", "rules", "--lint-fatal", folder / "rules.yaml"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if found.returncode == 0 else found.stdout + found.stderr


def in_place(query: str) -> str:
    """The query as Grafana asks it, with something in the place of each variable."""
    return re.sub(r"\$\{?(\w+)\}?", lambda found: _IN_PLACE[found[1]], query)


def test_grafanas_sidecar_finds_it() -> None:
    manifest: Any = dashboard_config("somewhere")
    assert manifest["metadata"]["labels"] == SIDECAR_LABEL == {"grafana_dashboard": "1"}
    ((name, text),) = manifest["data"].items()
    assert name.endswith(".json")
    assert json.loads(text) == json.loads(json.dumps(dashboard()))


def test_panels_fill_the_24_units_of_a_row() -> None:
    panels: Any = dashboard()["panels"]
    assert len(panels) == len(load_declared().panels)
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    assert not any(_overlap(one, other) for one, other in combinations(places, 2))


def test_queries_use_the_variables_that_there_are() -> None:
    variables: Any = dashboard()["templating"]
    names = {variable["name"] for variable in variables["list"]}
    assert names == {"datasource", "namespace", JOBSET}
    queries = " ".join(query.expression for panel in load_declared().panels for query in panel.queries)
    assert all(f"${name}" in queries for name in names - {"datasource"})


def test_prometheus_itself_can_read_every_query(promtool: Path, tmp_path: Path) -> None:
    panels: Any = dashboard()["panels"]
    queries = {
        f"panel_{panel['id']}:{target['refId']}": target["expr"] for panel in panels for target in panel["targets"]
    }
    assert len(queries) == sum(len(panel.queries) for panel in load_declared().panels)
    assert faults_of(promtool, tmp_path, queries) == ""


@pytest.mark.parametrize(
    "broken", ["sum by (cause) (trainer_loss", "rate(trainer_loss)", 'trainer_loss{namespace=~"$namespace}']
)
def test_an_invalid_query_would_be_detected(promtool: Path, tmp_path: Path, broken: str) -> None:
    assert '"panel_1:A"' in faults_of(promtool, tmp_path, {"panel_1:A": broken})


def _overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return abs(one["x"] - other["x"]) < one["w"] and abs(one["y"] - other["y"]) < one["h"]
