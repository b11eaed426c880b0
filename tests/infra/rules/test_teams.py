"""How teams may lend to each other: what makes no sense, or what Kueue would refuse."""

from typing import Any

import pytest

from infra.settings.errors import SettingsError
from infra.settings.read import parse
from tests.infra.one_job import only_team
from tests.infra.recording import Values


def _faults(values: Values) -> dict[str, str]:
    with pytest.raises(SettingsError) as raised:
        parse(values)
    return {fault.path: str(fault) for fault in raised.value.errors}


def _two_teams(values: Values, more: Values, scheduling: Values) -> Values:
    other: dict[str, Any] = {"namespace": "other", "quota": {"trillium": 0}}
    return values | {"teams": values["teams"] | {"other": other | more}, "scheduling": scheduling}


@pytest.mark.parametrize(
    ("more", "scheduling", "path", "words"),
    [
        (
            {"quota": {"trillium": {"chips": 0, "lending_limit": 4}}},
            {},
            "quota.trillium.lending_limit",
            "at most the team's own 0 chips, got 4; lower it or remove it to lend all",
        ),
        ({"weight": 2}, {}, "weight", "no weight, since weights count under fair sharing alone, got 2"),
        ({"weight": 0}, {"fair_sharing": True}, "weight", "greater than 0, got 0"),
        ({"weight": 0.0001}, {"fair_sharing": True}, "weight", "a multiple of 0.001, got 0.0001"),
        (
            {"preemption": {"while_borrowing": "lower-priority"}},
            {"fair_sharing": True},
            "preemption.while_borrowing",
            "never, since fair sharing itself says who may push out whom, got lower-priority; remove it",
        ),
        (
            {"preemption": {"while_borrowing": "lower-priority", "reclaim": "never"}},
            {},
            "preemption.reclaim",
            "lower-priority or any, for Kueue lets no team push others out that may not reclaim its own chips",
        ),
        ({"quota": {}}, {}, "quota", "at least 1 item"),
        ({"quota": ["trillium"]}, {}, "quota", "got ['trillium']"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(
    values: Values, more: Values, scheduling: Values, path: str, words: str
) -> None:
    told = _faults(_two_teams(values, more, scheduling))
    assert list(told) == [f"teams.other.{path}"]
    assert words in told[f"teams.other.{path}"]


def test_limits_between_teams_need_two_of_them(values: Values) -> None:
    values["teams"]["research"]["quota"] = {"trillium": {"chips": 16, "borrowing_limit": 0, "lending_limit": 16}}
    told = _faults(values)["teams.research.quota.trillium"]
    assert "no limit, since there is no other team" in told
    assert "got borrowing_limit and lending_limit; remove it or add a team" in told
    parse(_two_teams(values, {}, {}))


def test_hosts_that_come_on_request_cannot_be_counted_beforehand(values: Values) -> None:
    values["scheduling"] = {"placement": "topology-aware"}
    parse(values)
    values["slices"]["trillium"]["capacity"] = {"kind": "flex-start", "max_run_hours": 4}
    told = _faults(values)["scheduling.placement"]
    assert "expected exclusive-topology, since nodes of trillium come on request" in told


def test_a_group_needs_a_cluster_that_asks_google_who_is_in_it(values: Values) -> None:
    values["teams"]["research"]["members"] = {"users": ["ada@example.com"], "groups": ["research@example.com"]}
    told = _faults(values)["teams.research.members.groups"]
    assert "does not ask Google who is in a group, got research@example.com; set cluster.security_group" in told
    values["cluster"]["security_group"] = "gke-security-groups@example.com"
    assert only_team(parse(values)).members.groups == ("research@example.com",)


@pytest.mark.parametrize(
    ("section", "value", "path"),
    [
        ("teams", {"users": ["Ada@example.com"]}, "teams.research.members.users.0"),
        ("teams", {"users": ["ada"]}, "teams.research.members.users.0"),
        ("cluster", "all-teams@example.com", "cluster.security_group"),
    ],
)
def test_an_address_that_gke_would_not_know_is_refused(values: Values, section: str, value: object, path: str) -> None:
    if section == "teams":
        values["teams"]["research"]["members"] = value
    else:
        values["cluster"]["security_group"] = value
    assert list(_faults(values)) == [path]


def test_names_of_team_and_job_fit_into_one_label_together(values: Values) -> None:
    team, name = "t" * 40, "j" * 23
    values["teams"] = {team: values["teams"]["research"]}
    values["job"] |= {"team": team, "name": name}
    assert "at most 62 characters together, got 63" in _faults(values)["job"]
    values["job"]["name"] = name[1:]
    assert parse(values).jobs
