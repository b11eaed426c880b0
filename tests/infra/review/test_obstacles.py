"""What keeps a stack from being brought up."""

import json
import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from infra.review.obstacles import doubts, expiry_errors, loss, placeholders, slice_dependencies
from infra.stack.settings.read import parse
from infra.stack.settings.schema import Budget
from tests.infra.recording import ROOT, Values, stack_values
from tests.infra.review.known import own
from tests.infra.spoiling import edited

STACKS = ("dev", "prod", "staging")


@pytest.fixture
def ready() -> Values:
    """A stack file whose example values are replaced."""
    return own("dev")


def paths(found: Any) -> list[str]:
    return [fault.path for fault in found]


@pytest.mark.parametrize("stack", STACKS)
def test_every_example_value_of_the_stacks_is_known_as_one(stack: str) -> None:
    text = (ROOT / "stacks" / f"Pulumi.{stack}.yaml").read_text()
    errors = " ".join(map(str, placeholders(parse(stack_values(stack)))))
    expected = {"cloud.project"} | ({"image.reference"} if "reference" in text else set())
    assert expected <= set(paths(placeholders(parse(stack_values(stack)))))
    for name in re.findall(r"^ +(?:project|bucket): (my-[a-z-]+)$", text, re.MULTILINE):
        assert name in errors


def test_a_stack_with_values_of_its_own_is_ready(ready: Values) -> None:
    accepted = parse(ready)
    assert (paths(placeholders(accepted)), paths(doubts(accepted))) == ([], [])


def test_an_image_of_a_container_may_be_a_placeholder_too(ready: Values) -> None:
    job = {**ready.pop("job"), "kind": "container", "image": f"probe@sha256:{'0' * 64}"}
    keys = ("team", "slices", "priority", "max_restarts", "kind", "image")
    ready["jobs"] = {"probe": {key: job[key] for key in keys}}
    assert paths(placeholders(parse(ready))) == ["jobs.probe.image"]


_DATA = {"source": "token-file", "path": "gs://corpus/tokens", "held_out_fraction": 0.01}
_MIXTURE = {
    "source": "mixture",
    "datasets": {"web": {"path": "gs://corpus/web", "weight": 2}, "code": {"path": "gs://code/tokens", "weight": 1}},
    "held_out_fraction": 0.01,
}


@pytest.mark.parametrize(
    ("job", "datasets", "missing"),
    [
        ({"data": _DATA}, None, ["corpus"]),
        ({"data": _DATA}, {"bucket": "other"}, ["corpus"]),
        ({"data": _DATA}, {"bucket": "corpus"}, []),
        ({"data": {**_DATA, "path": "gs://our-project-multislice-dev-checkpoints/tokens"}}, None, ["teams/research"]),
        ({"data": {**_DATA, "path": "gs://our-project-multislice-dev-checkpoints/teams/research/a"}}, None, []),
        ({"initial_weights": "gs://our-project-multislice-dev-checkpoints/tiny/exports/9"}, None, []),
        ({"data": {**_DATA, "path": "/datasets/tokens"}}, {"bucket": "corpus"}, ["/datasets"]),
        ({"data": {**_DATA, "path": "/datasets/tokens"}}, {"bucket": "corpus", "mount": True}, []),
        ({"initial_weights": "gs://weights/8b"}, {"bucket": "corpus"}, ["weights"]),
        ({"data": _DATA, "initial_weights": "gs://corpus/8b"}, None, ["corpus"]),
        ({"data": _MIXTURE}, {"bucket": "corpus"}, ["code"]),
    ],
)
def test_data_that_the_trainers_may_not_read_is_named(
    ready: Values, job: Values, datasets: Values | None, missing: list[str]
) -> None:
    ready["job"] |= job
    ready |= {"datasets": datasets} if datasets else {}
    found = list(doubts(parse(ready)))
    assert [name for name, fault in zip(missing, found, strict=True) if name in fault.expected] == missing


@pytest.mark.parametrize(
    ("generation", "topology", "zone", "named"),
    [
        ("v6e", "2x4", "southamerica-east1-b", True),
        ("v6e", "2x4", "europe-north9-a", True),
        ("v5p", "2x2x2", "us-east1-b", True),
        ("v5p", "2x2x2", "us-east1-d", False),
        ("7x", "2x2x2", "us-east1-b", False),
    ],
)
@pytest.mark.parametrize("capacity", ["spot", {"kind": "reservation", "name": "chips"}])
def test_chips_that_no_price_list_has_in_the_zone_are_named(
    ready: Values, generation: str, topology: str, zone: str, *, named: bool, capacity: object
) -> None:
    ready["cloud"] |= {"region": zone.rpartition("-")[0], "zone": zone}
    ready["slices"]["trillium"] |= {"generation": generation, "topology": topology, "capacity": capacity}
    assert paths(doubts(parse(ready))) == (["cloud.zone"] if named else [])
    # Whoever has a price by contract knows that there are chips.
    ready["prices"] = {"usd_per_chip_hour": {"trillium": 1.0}}
    assert paths(doubts(parse(ready))) == []


@pytest.mark.parametrize(("zone", "named"), [("us-east1-b", True), ("us-east1-d", False)])
def test_a_group_is_looked_up_in_its_own_zone(ready: Values, zone: str, *, named: bool) -> None:
    ready["cloud"] |= {"region": "us-east1", "zone": "us-east1-d" if named else "us-east1-b"}
    ready["slices"]["trillium"] |= {"generation": "v5p", "topology": "2x2x2", "zone": zone}
    assert paths(doubts(parse(ready))) == (["slices.trillium.zone"] if named else [])


BUDGET = Budget(expires_on=date(2026, 3, 1))


@pytest.mark.parametrize(
    ("budget", "at", "got"),
    [
        # A budget holds through its last day.
        (BUDGET, datetime(2026, 3, 1, 23, 59, tzinfo=UTC), []),
        (BUDGET, datetime(2026, 3, 2, tzinfo=UTC), ["2026-03-01; set a later one, or destroy"]),
        (Budget(usd_per_hour=1), datetime(2999, 1, 1, tzinfo=UTC), []),
        (None, datetime(2999, 1, 1, tzinfo=UTC), []),
    ],
)
def test_a_budget_whose_last_day_is_past_is_reported_with_its_end(
    budget: Budget | None, at: datetime, got: list[str]
) -> None:
    found = expiry_errors(budget, at, "dev")
    assert paths(found) == ["budget.expires_on"] * len(got)
    assert all(f"got {words}" in str(error) for error, words in zip(found, got, strict=True))
    assert all("multislice down -s dev" in error.fix for error in found)


LOCAL = stack_values("local")
_GROUP, _JOB, _TEAM = "slices.trillium", "job.slices.count", "teams.research"
_OTHER = {"generation": "v5e", "topology": "4x4", "count": 1, "capacity": "spot"}
_MOUNTED = {"bucket": "text-a", "mount": True}


def _team(name: str) -> Values:
    return {f"teams.{name}": {"namespace": "product-ml", "quota": {"trillium": 0}}}


def _existing(kueue: str) -> Values:
    existing = {"name": "shared", "location": LOCAL["cloud"]["region"], "jobset": "found", "kueue": kueue}
    return {"cluster": {"name": "research", "existing": existing}}


CHANGES: list[tuple[Values, Values]] = [
    ({}, {f"{_GROUP}.capacity": {"kind": "reservation", "name": "chips"}}),
    ({}, {f"{_GROUP}.boot_disk_gb": 200}),
    ({}, {f"{_GROUP}.zone": "us-east5-a"}),
    ({}, {f"{_GROUP}.zone": "us-east5-b"}),
    ({}, {f"{_GROUP}.count": 3}),
    ({}, {f"{_GROUP}.count": 1, _JOB: 1, f"{_TEAM}.quota.trillium": 8}),
    ({}, {"slices.other": _OTHER, f"{_TEAM}.quota.other": 0}),
    ({}, {"cluster.name": "other"}),
    ({}, {"cloud.zone": "us-east5-c"}),
    ({}, {"network.pods": "10.32.0.0/12"}),
    *(({}, {"network.nodes": nodes}) for nodes in ("10.3.0.0/18", "10.0.0.0/19", "10.0.0.0/17")),
    ({}, {"labels": {"cost-center": "research"}}),
    ({}, {"cluster.release_channel": "STABLE"}),
    ({}, {"job.priority": "high"}),
    ({}, {f"{_TEAM}.namespace": "lab"}),
    ({"datasets": {"bucket": "tokens"}}, {}),
    ({}, {"datasets": {"bucket": "tokens"}}),
    ({"datasets": {"bucket": "text-a"}}, {"datasets": {"bucket": "text-b"}}),
    ({"datasets": _MOUNTED}, {"datasets": {"bucket": "text-a"}}),
    ({"datasets": {"bucket": "text-a"}}, {"datasets": _MOUNTED}),
    ({"job.host_network": True}, {}),
    ({}, {"job.host_network": True}),
    (_team("product"), {}),
    (_team("product"), _team("goods")),
    ({}, _team("product")),
    # Chips that no queue counts any more.
    ({}, {"scheduling.placement": "topology-aware"}),
    (_existing("install"), _existing("found")),
    (_existing("found"), _existing("install")),
]


def test_what_a_change_takes_away_is_what_the_golden_file_says(accepted_golden: Callable[[Path, str], None]) -> None:
    lines: list[str] = []
    for changes in CHANGES:
        before, after = (slice_dependencies(parse(edited(deepcopy(LOCAL), each))) for each in changes)
        found = {name: value for name, value in asdict(loss(before, after)).items() if value != ()}
        lines.append(f"- {' -> '.join(map(json.dumps, changes))}")
        lines += [f"    {name}: {json.dumps(value)}" for name, value in found.items()] or ["    nothing"]
    accepted_golden(ROOT / "tests" / "golden" / "losses.txt", "\n".join(lines) + "\n")
