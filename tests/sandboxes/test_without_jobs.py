"""A stack without jobs by `make up`, and a first queued group in one that stands."""

import io
from copy import deepcopy
from typing import Any

import pytest
from rich.console import Console

from cli.up import up
from tests.chain.stack import Chain, ignore, wait_until
from tests.infra.recording import Values, stack_values

pytestmark = pytest.mark.complete

QUEUED_GROUP = {
    "generation": "v6e",
    "topology": "2x4",
    "count": 1,
    "capacity": {"kind": "queued", "max_run_hours": 1},
}


@pytest.fixture
def without_jobs() -> Values:
    values = deepcopy(stack_values("local"))
    del values["job"], values["image"]
    return values | {"jobs": {}}


def test_make_up_ends_when_the_stack_is_up_and_a_later_queued_group_finds_kueue_ready(
    chain: Chain, without_jobs: Values
) -> None:
    shown = io.StringIO()
    assert up(chain.written(without_jobs), chain.site.root, Console(file=shown, width=200)) == 0
    assert "has no jobs" in shown.getvalue()
    assert [queue["metadata"]["name"] for queue in chain.objects("clusterqueues")] == ["research"]
    assert chain.objects("jobsets") == []
    # Kueue looks for the kind of the group's requests when it starts, and the kind comes with the group.
    without_jobs["slices"]["requested"] = QUEUED_GROUP
    chain.engine_on(without_jobs).up(ignore)

    def active() -> bool:
        return [_reason(check) for check in chain.objects("admissionchecks")] == ["Active"]

    wait_until(active, lambda: chain.kubectl("get", "admissionchecks", "-o", "yaml"))


def _reason(check: dict[str, Any]) -> str | None:
    conditions = check.get("status", {}).get("conditions", [])
    return next((found["reason"] for found in conditions if found["type"] == "Active"), None)
