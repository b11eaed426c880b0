import pytest

from infra.stack.settings.errors import FieldError, SettingsError
from infra.stack.settings.read import parse, read_values
from infra.stack.settings.starter import JOB, TEAM, Starter, group_name, sections
from infra.stack.tpu import SliceShape, all_shapes


def starter(**other: str) -> Starter:
    values = {"project": "acme", "region": "us-east5", "zone": "us-east5-b", "generation": "v6e", "topology": "4x4"}
    return Starter.model_validate(values | other)


SHAPES = {(shape.generation, shape.topology): shape for shape in all_shapes()}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=[" ".join(name) for name in SHAPES])
def test_a_starter_of_every_slice_of_gke_is_a_valid_stack(shape: SliceShape) -> None:
    settings = parse(sections(starter(generation=shape.generation, topology=shape.topology), "multislice-dev"))
    name = group_name(shape.generation)
    group = settings.slices[name]
    assert group.shape.topology == shape.topology
    assert group.count == (2 if group.shape.multi_host else 1)
    assert settings.teams[TEAM].quota[name].chips == group.chips
    assert settings.jobs[JOB].slices.count == group.count


VALUES = {"project": "acme", "region": "us-east5", "zone": "us-east5-b", "generation": "v5p", "topology": "2x2x2"}


def test_sections_of_the_file_replace_those_of_the_starter() -> None:
    settings = read_values(VALUES | {"jobs": {}, "image": {"build": True}, "labels": {"team": "a"}}, "first")
    assert settings.jobs == {}
    assert settings.labels["team"] == "a"


def test_the_job_of_a_starter_belongs_to_the_only_team_of_the_file() -> None:
    team = {"namespace": "ml", "quota": {"v5p": 16}}
    assert read_values(VALUES | {"teams": {"ml": team}}, "first").jobs[JOB].team == "ml"


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"teams": {name: {"namespace": name, "quota": {"v5p": 8}} for name in ("a", "b")}}, {"job"}),
        (
            {"slices": {"big": {"generation": "v5p", "topology": "2x2x2", "count": 2, "capacity": "spot"}}},
            {"teams", "job"},
        ),
    ],
)
def test_a_section_that_does_not_fit_those_of_the_starter_asks_for_the_others(
    changes: dict[str, object], missing: set[str]
) -> None:
    with pytest.raises(SettingsError) as raised:
        read_values(VALUES | changes, "first")
    assert {error.path for error in raised.value.errors} == missing
    assert all(f"write the section {error.path}" in error.fix for error in raised.value.errors)


def errors_in(**changes: object) -> dict[str, FieldError]:
    """The errors of a stack file with a starter. A value that is `...` is missing."""
    values = {name: value for name, value in {**VALUES, **changes}.items() if value is not ...}
    with pytest.raises(SettingsError) as raised:
        read_values(values, "first")
    return {error.path: error for error in raised.value.errors}


@pytest.mark.parametrize(
    ("changes", "paths"),
    [
        (
            {"zone": ..., "budget": {"alerts": {}}},
            ("zone", "budget.alerts.billing_account", "budget.alerts.usd_per_month"),
        ),
        ({"capacity": "cheap", "teams": {"a": {}}}, ("capacity", "teams.a.namespace", "teams.a.quota")),
        ({"project": "Acme", "topology": "9x9"}, ("project", "generation, topology")),
        ({"project": "Acme", "region": "us-west1"}, ("project", "zone")),
        ({"project": "Acme", "bugdet": {}}, ("project", "bugdet")),
        ({"generation": ..., "teams": {"a": {"namespace": "a", "quota": {"v5p": 8}}}}, ("generation",)),
        (
            {"project": "Acme", "job": {"preset": "tiny", "slices": {"group": "v5p", "count": 1}, "max_hours": "4h"}},
            ("project", "job.max_hours"),
        ),
    ],
)
def test_an_error_of_a_starter_hides_no_other_error_and_makes_none(
    changes: dict[str, object], paths: tuple[str, ...]
) -> None:
    assert errors_in(**changes).keys() == {*paths}


def test_a_misspelt_value_of_a_starter_is_reported_once_with_the_one_that_was_meant() -> None:
    found = errors_in(topology=..., topolgy="2x2x2")
    assert [(error.path, error.meant) for error in found.values()] == [("topolgy", "topology")]


def test_errors_of_what_a_starter_becomes_name_the_values_of_the_starter() -> None:
    error = errors_in(region="us-west1")["zone"]
    assert error.fix == "change zone or region"
    with pytest.raises(SettingsError) as raised:
        read_values(VALUES, "Bad_Name")
    (error,) = raised.value.errors
    assert (error.path, error.got) == ("the stack", "'Bad_Name'")
