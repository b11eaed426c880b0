"""Every resource of a stack as it is declared, held against a file; `UPDATE_GOLDEN=1` accepts a change."""

import os
import re
from itertools import groupby
from typing import Any

import pytest
import yaml

from tests.infra.recording import ROOT, Recording, Registration, Values, run_program, stack_values

_OPTIONS = ("protect", "deleteBeforeReplace", "replaceOnChanges", "replace_with", "ignoreChanges")


def _described(found: Registration) -> Values:
    options = {name: getattr(found.request, name) for name in _OPTIONS}
    plain: dict[str, Any] = {name: value if isinstance(value, bool) else list(value) for name, value in options.items()}
    create = found.request.customTimeouts.create
    return {
        "type": found.type,
        "name": found.name,
        "options": {name: value for name, value in plain.items() if value} | ({"create": create} if create else {}),
        "inputs": found.inputs,
    }


def _text(recording: Recording) -> str:
    resources = [found for found in recording.registrations if ":infra:" not in found.type]
    ordered = sorted(resources, key=lambda found: (found.type, _unnumbered(found.name), len(found.name), found.name))
    described = [_described(found) for found in ordered]
    runs = [list(run) for _, run in groupby(described, _equality)]
    return yaml.safe_dump_all([_first(run) for run in runs], width=120)


def _equality(resource: Values) -> str:
    """The same for resources that differ in the number at the end of their names alone."""
    inputs = resource["inputs"]
    named = {"name": _unnumbered(inputs["name"])} if isinstance(inputs.get("name"), str) else {}
    return yaml.safe_dump(resource | {"name": _unnumbered(resource["name"]), "inputs": inputs | named})


def _first(run: list[Values]) -> Values:
    """The first of equal resources, and how many there are besides."""
    return run[0] | ({"equal": f"{len(run) - 1}: {run[1]['name']} to {run[-1]['name']}"} if len(run) > 1 else {})


def _unnumbered(name: str) -> str:
    return re.sub(r"-\d+$", "", name)


@pytest.mark.parametrize("stack", ["local", "dev", "staging", "prod", "scale", "two-teams"])
def test_the_declared_resources_are_those_of_the_golden_file(stack: str, two_teams: Values) -> None:
    text = _text(run_program(two_teams if stack == "two-teams" else stack_values(stack)))
    golden = ROOT / "tests" / "golden" / f"{stack}.yaml"
    if os.environ.get("UPDATE_GOLDEN") == "1":
        golden.write_text(text)
    assert golden.read_text() == text
