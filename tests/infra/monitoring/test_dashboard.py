import json
from itertools import combinations
from typing import Any

from infra.monitoring.collection import JOBSET_LABEL
from infra.monitoring.dashboard import PANELS, SIDECAR_LABEL, config_map, dashboard


def test_grafanas_sidecar_finds_it() -> None:
    manifest: Any = config_map("somewhere")
    assert manifest["metadata"]["labels"] == SIDECAR_LABEL == {"grafana_dashboard": "1"}
    ((name, text),) = manifest["data"].items()
    assert name.endswith(".json")
    assert json.loads(text) == json.loads(json.dumps(dashboard()))


def test_panels_lie_beside_each_other_in_the_24_units_of_a_row() -> None:
    panels: Any = dashboard()["panels"]
    assert len(panels) == len(PANELS)
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    assert not any(_overlap(one, other) for one, other in combinations(places, 2))


def test_queries_use_the_variables_that_there_are() -> None:
    variables: Any = dashboard()["templating"]
    names = {variable["name"] for variable in variables["list"]}
    assert names == {"datasource", "namespace", JOBSET_LABEL}
    queries = " ".join(query.expression for panel in PANELS for query in panel.queries)
    assert all(f"${name}" in queries for name in names - {"datasource"})


def _overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return abs(one["x"] - other["x"]) < one["w"] and abs(one["y"] - other["y"]) < one["h"]
