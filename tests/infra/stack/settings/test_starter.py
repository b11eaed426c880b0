import pytest

from infra.stack.settings.errors import SettingsError
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


def test_errors_of_what_a_starter_becomes_name_the_values_of_the_starter() -> None:
    with pytest.raises(SettingsError) as raised:
        read_values(VALUES | {"region": "us-west1"}, "first")
    (error,) = raised.value.errors
    assert (error.path, error.fix) == ("zone", "change zone or region")
    with pytest.raises(SettingsError) as raised:
        read_values(VALUES, "Bad_Name")
    (error,) = raised.value.errors
    assert (error.path, error.got) == ("the stack", "'Bad_Name'")
