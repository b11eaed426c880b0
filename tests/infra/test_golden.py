"""Every resource of a stack as it is declared, held against a file; `UPDATE_GOLDEN=1` accepts a change."""

import os
from typing import Any

import pytest
import yaml

from tests.infra.recording import ROOT, Recording, Registration, Values, run_program, stack_values

_OPTIONS = ("protect", "deleteBeforeReplace", "replaceOnChanges", "replace_with", "ignoreChanges")


def _described(found: Registration) -> Values:
    options = {name: getattr(found.request, name) for name in _OPTIONS}
    plain: dict[str, Any] = {name: value if isinstance(value, bool) else list(value) for name, value in options.items()}
    return {
        "type": found.type,
        "name": found.name,
        "options": {name: value for name, value in plain.items() if value},
        "inputs": found.inputs,
    }


def _text(recording: Recording) -> str:
    resources = [
        found for found in recording.registrations if ":infra:" not in found.type and "Stack" not in found.type
    ]
    ordered = sorted(resources, key=lambda found: (found.type, found.name))
    return yaml.safe_dump_all(map(_described, ordered), width=120)


@pytest.mark.parametrize("stack", ["local", "dev", "staging", "prod", "two-teams"])
def test_the_declared_resources_are_those_of_the_golden_file(stack: str, two_teams: Values) -> None:
    text = _text(run_program(two_teams if stack == "two-teams" else stack_values(stack)))
    golden = ROOT / "tests" / "golden" / f"{stack}.yaml"
    if os.environ.get("UPDATE_GOLDEN") == "1":
        golden.write_text(text)
    assert golden.read_text() == text
