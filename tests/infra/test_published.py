"""The record that a stack publishes for the members of a team."""

import json
from typing import Any

import pytest

from infra.access import role
from infra.names import PUBLISHED, PUBLISHED_KEY
from infra.published import Published, join_records
from infra.settings.read import parse
from tests.infra.recording import Recording, Values, stack_values

IMAGE = "trainer@sha256:0"


def records(values: Values) -> dict[str, Published]:
    settings = parse(values)
    return {team: Published.of("local", settings, team, IMAGE) for team in settings.teams}


def test_it_is_read_as_it_was_written_for_every_kind_of_capacity(values: Values) -> None:
    reserved = {"kind": "reservation", "name": "ours", "project": "theirs"}
    for capacity in ("spot", reserved, {"kind": "flex-start", "max_run_hours": 3}):
        values["slices"]["trillium"]["capacity"] = capacity
        (found,) = records(values).values()
        assert Published.model_validate_json(found.model_dump_json()) == found
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
    text = records(shared)["research"].model_dump_json()
    for secret in ("ada@", "bob@", "carol@", "0A1B2C", "cornerstone", "0.77", "reserved", "203.0.113"):
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


def test_each_namespace_has_its_record_which_members_read_and_cannot_change(program: Recording) -> None:
    found = program.starting("kubernetes:core/v1:ConfigMap", "published-")
    assert found
    for each in found:
        metadata = each.inputs["metadata"]
        record = Published.model_validate_json(each.inputs["data"][PUBLISHED_KEY])
        assert (metadata["name"], metadata["namespace"]) == (PUBLISHED, record.namespace)
    rules: Any = role("research")["rules"]
    (own,) = [rule for rule in rules if "configmaps" in rule["resources"]]
    assert (own["verbs"], own["resourceNames"]) == (["get"], [PUBLISHED])
    assert "calls" not in json.dumps([*program.exports])
