"""The JSON Schema of stack files accepts what the program accepts, and finds the usual mistakes in an editor."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from jsonschema import Draft202012Validator

from tests.documents.pages import hold
from tests.documents.stack_file_schema import schema
from tests.infra.legal_values import legal_values
from tests.infra.recording import Values

STACKS = Path(__file__).parents[2] / "stacks"
FILES = sorted(STACKS.glob("Pulumi.*.yaml"))
VALIDATOR = Draft202012Validator(json.loads(schema()))


def errors(content: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(content)]


def stack_file(values: Values) -> Any:
    return {"config": {f"tpu-multislice:{name}": value for name, value in json.loads(json.dumps(values)).items()}}


def test_the_committed_schema_is_that_of_the_settings() -> None:
    hold(STACKS / "schema.json", schema())


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_stack_file_names_the_schema_and_is_valid(file: Path) -> None:
    assert file.read_text().splitlines()[0] == "# yaml-language-server: $schema=schema.json"
    assert errors(yaml.safe_load(file.read_text())) == []


@pytest.mark.costs(cpu_seconds=6)
@given(legal_values())
def test_the_schema_accepts_every_stack_file_that_the_program_accepts(values: Values) -> None:
    assert errors(stack_file(values)) == []


@pytest.mark.parametrize(
    ("section", "change"),
    [
        ("slices", {"trillium": {"generation": "v6e", "topolgy": "2x4", "count": 1, "capacity": "spot"}}),
        ("slices", {"trillium": {"generation": "v6e", "topology": "3x3", "count": 1, "capacity": "spot"}}),
        ("slices", {"trillium": {"generation": "v6", "topology": "2x4", "count": 1, "capacity": "spot"}}),
        ("slices", {"trillium": {"generation": "v6e", "topology": "2x4", "count": "two", "capacity": "spot"}}),
        ("slices", {"trillium": {"generation": "v6e", "topology": "2x4", "count": 1, "capacity": "queued"}}),
        ("secrets", {"TOKEN": "in the clear"}),
    ],
    ids=["a misspelt key", "no topology of v6e", "no generation", "text for a number", "no run time", "a bare secret"],
)
def test_the_schema_finds_a_mistake(section: str, change: Values) -> None:
    content = deepcopy(yaml.safe_load((STACKS / "Pulumi.staging.yaml").read_text()))
    content["config"][f"tpu-multislice:{section}"] = change
    assert errors(content)


def test_the_schema_finds_a_mistake_in_a_starter() -> None:
    config = yaml.safe_load((STACKS / "Pulumi.dev.yaml").read_text())["config"]
    assert errors({"config": config | {"tpu-multislice:project": ["my-project"]}})
    assert errors({"config": config | {"tpu-multislice:generation": "v6f"}})


def test_keys_of_other_packages_are_not_checked() -> None:
    assert errors({"config": {"gcp:project": 1, "other:cloud": "anything"}}) == []
