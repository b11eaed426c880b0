"""The record that a stack publishes for the members of a team."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from infra.cluster.kubernetes import ApiServer
from infra.cluster.stacks import read_published
from infra.stack.names import PUBLISHED_KEY
from infra.stack.published import Published, RecordError, join_records
from infra.stack.settings.read import parse
from infra.stack.settings.schema import Scheduling
from infra.stack.settings.submitted import read_submitted
from tests.infra.recording import Values, stack_values

IMAGE = "trainer@sha256:0"
JOB: Values = {"preset": "tiny", "slices": {"group": "trillium", "count": 1}, "max_hours": 1}
OLD = (Path(__file__).parent / "published-without-version.json").read_text()
"""Record of a stack that was deployed before records had a version."""
GROUP_KEYS = ("generation", "topology", "count", "capacity")
BY_NAME = ("slices", "teams", "quota", "usd_per_chip_hour", "authorized_networks")
"""Mappings of which each key is a name."""


def records(values: Values) -> dict[str, Published]:
    settings = parse(values)
    return {team: Published.of("local", settings, team, IMAGE) for team in settings.teams}


def read(data: object) -> Published:
    """Return the record in a ConfigMap with this data."""
    api = SimpleNamespace(find=lambda path: {"data": data})  # pyright: ignore[reportUnknownLambdaType]
    found = read_published(cast(ApiServer, api), "research")
    assert found
    return found


def with_unknown_keys(value: Any, name: str = "") -> Any:
    if not isinstance(value, dict):
        return value
    kept = {key: with_unknown_keys(each, key) for key, each in cast(Values, value).items()}
    return kept if name in BY_NAME else kept | {"of_the_future": {"any": [1]}}


def test_it_is_read_as_it_was_written_for_every_kind_of_capacity(values: Values) -> None:
    reserved = {"kind": "reservation", "name": "ours", "project": "theirs"}
    for capacity in ("spot", reserved, {"kind": "flex-start", "max_run_hours": 3}):
        values["slices"]["trillium"]["capacity"] = capacity
        (found,) = records(values).values()
        assert read({PUBLISHED_KEY: found.text}) == found
        assert (found.slices, found.image) == (parse(values).slices, IMAGE)


@pytest.fixture
def shared() -> Values:
    """Two teams share the trillium slices, and one of them has reserved slices at a contract price."""
    values: Any = stack_values("local")
    reserved = {"kind": "reservation", "name": "cornerstone"}
    values["slices"]["reserved"] = {**values["slices"]["trillium"], "capacity": reserved}
    values["prices"] = {"usd_per_chip_hour": {"reserved": 0.77}}
    values["teams"]["research"]["members"] = {"users": ["ada@example.com"]}
    quota = {"trillium": 0, "reserved": 8}
    values["teams"]["product"] = {"namespace": "product", "quota": quota, "members": {"users": ["bob@example.com"]}}
    alerts = {"billing_account": "0A1B2C-345678-9D0E1F", "usd_per_month": 10, "emails": ["carol@example.com"]}
    values["budget"] = {"usd_per_hour": 1e6, "alerts": alerts}
    values["cluster"]["authorized_networks"] = {"office": "203.0.113.0/24"}
    return values


def test_a_team_learns_nothing_of_groups_it_cannot_use_of_people_or_of_access_to_the_cluster(shared: Values) -> None:
    text = records(shared)["research"].text
    for secret in ("ada@", "bob@", "carol@", "0A1B2C", "cornerstone", "0.77", "reserved", "203.0.113", "image_disk"):
        assert secret not in text
    found = records(shared)["research"]
    assert found.teams["product"].quota.keys() == {"trillium"}
    assert records(shared)["product"].prices.usd_per_chip_hour == {"reserved": 0.77}


def test_records_of_several_teams_are_those_of_one_who_may_read_them(shared: Values) -> None:
    both = join_records([*records(shared).values()])
    assert (both.slices.keys(), dict(both.namespaces)) == (
        {"trillium", "reserved"},
        {"research": "research", "product": "product"},
    )
    assert dict(join_records([records(shared)["research"]]).namespaces) == {"research": "research"}


def test_a_stack_without_a_version_in_its_record_is_read_and_takes_jobs() -> None:
    found = read({PUBLISHED_KEY: OLD})
    assert (found.version, found.jobs, found.head_millicores) == ("1.0", ("tiny",), 6000)
    assert [*read_submitted("mine", JOB, found).jobs] == ["mine"]


@pytest.mark.parametrize("version", ["1.0", "1.7"])
def test_keys_that_this_version_does_not_know_are_ignored_at_every_level(version: str) -> None:
    written = json.loads(OLD) | {"version": version}
    found = read({PUBLISHED_KEY: json.dumps(with_unknown_keys(written))})
    assert found == read({PUBLISHED_KEY: json.dumps(written)})
    assert [*read_submitted("mine", JOB, found).jobs] == ["mine"]


def test_keys_that_an_older_version_did_not_write_have_defaults() -> None:
    written = json.loads(OLD)
    least = {name: written[name] for name in ("stack", "team", "bucket", "cloud")}
    of_groups = {name: {key: group[key] for key in GROUP_KEYS} for name, group in written["slices"].items()}
    of_teams = {name: {key: team[key] for key in ("namespace", "quota")} for name, team in written["teams"].items()}
    least |= {"cluster": {"name": "local"}, "slices": of_groups, "teams": of_teams}
    found = read({PUBLISHED_KEY: json.dumps(least)})
    assert (found.image, found.jobs, found.scheduling, found.pod_level) == (None, (), Scheduling(), "restricted")
    assert found.outputs["checkpoint_bucket"] == "gs://sandbox-local-checkpoints"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({PUBLISHED_KEY: '{"version": "2.0", "stack": {}}'}, "got version 2.0; .*`pip install .`"),
        ({PUBLISHED_KEY: '{"version": "next"}'}, "multislice up -s STACK --refresh"),
        ({PUBLISHED_KEY: '{"stack": "local"}'}, "multislice up -s STACK --refresh"),
        ({PUBLISHED_KEY: OLD[:200]}, "multislice up -s STACK --refresh"),
        ({PUBLISHED_KEY: "[]"}, "multislice up -s STACK --refresh"),
        ({}, "multislice up -s STACK --refresh"),
        (None, "multislice up -s STACK --refresh"),
    ],
)
def test_a_record_of_a_newer_format_or_damaged_text_is_refused_with_what_to_do(data: object, says: str) -> None:
    with pytest.raises(RecordError, match=says):
        read(data)
