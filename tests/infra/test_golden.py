"""Every resource of a stack as it is declared, compared with a file; `UPDATE_GOLDEN=1` accepts a change.

`dev.yaml` has the resources of `dev` whole. The files of the other stacks have what differs from it, so that a field
that changes in all stacks changes one line.
"""

import json
import os
import re
from itertools import groupby
from typing import Any

import pytest
import yaml

from tests.infra.difference import Resources, difference
from tests.infra.recording import ROOT, Recording, Registration, Values, run_program, scale_values, stack_values

_OPTIONS = ("protect", "retainOnDelete", "deleteBeforeReplace", "replaceOnChanges", "replace_with", "ignoreChanges")


class _Dumper(yaml.SafeDumper):
    """Writes a text of several lines as it looks, and a long path on the line of its value."""

    def check_simple_key(self) -> bool:
        # PyYAML takes keys of 128 characters at most; YAML takes 1024.
        event: Any = self.event
        return isinstance(event, yaml.ScalarEvent) and len(event.value) < 1024 and "\n" not in event.value


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def _resources(recording: Recording) -> Resources:
    """Resources that differ only in the number at the end of their names are described once."""
    resources = [found for found in recording.registrations if ":infra:" not in found.type]
    ordered = sorted(resources, key=lambda found: (found.type, *_in_numbers(found.name)))
    described = [(found.type, found.name, _described(found)) for found in ordered]
    runs = [list(run) for _, run in groupby(described, lambda each: _apart_from_number(*each))]
    return {
        f"{kind} {name}": values | ({"equal up to": run[-1][1]} if len(run) > 1 else {})
        for run in runs
        for kind, name, values in run[:1]
    }


def _described(found: Registration) -> Values:
    options = {name: getattr(found.request, name) for name in _OPTIONS}
    plain: dict[str, Any] = {name: value if isinstance(value, bool) else list(value) for name, value in options.items()}
    create = found.request.customTimeouts.create
    kept = {name: value for name, value in plain.items() if value} | ({"create": create} if create else {})
    return ({"options": kept} if kept else {}) | {"inputs": _unfolded(found.inputs)}


def _apart_from_number(kind: str, name: str, values: Values) -> str:
    inputs = values["inputs"]
    named = {"name": _unnumbered(inputs["name"])} if isinstance(inputs.get("name"), str) else {}
    return json.dumps([kind, _unnumbered(name), values | {"inputs": inputs | named}])


def _unnumbered(name: str) -> str:
    return re.sub(r"-\d+$", "", name)


def _in_numbers(name: str) -> tuple[str, int, str]:
    return _unnumbered(name), len(name), name


def _unfolded(value: Any, key: str = "") -> Any:
    """The value in the order of its keys, with the JSON and YAML of its texts read, equal slices described once."""
    match value:
        case dict():
            return _once({name: _unfolded(value[name], name) for name in sorted(value, key=_in_numbers)})
        case list():
            return [_unfolded(each) for each in value]
        case str() if value.startswith("{") and not value.startswith("{{"):
            return {"json": _unfolded(json.loads(value))}
        case str() if key.endswith("Yaml"):
            return {"yaml": _unfolded(yaml.safe_load(value))}
        case _:
            return value


def _once(values: Values) -> Values:
    """A mapping by slice, in which slices that equal the one before them are only named."""
    shortened: Values = {}
    for _, each in groupby(values, lambda name: (_unnumbered(name), json.dumps(values[name]))):
        first, *others = each
        shortened[first] = values[first]
        if others:
            shortened[f"{first}, equal up to"] = others[-1]
    return shortened


@pytest.fixture(scope="module")
def dev() -> Resources:
    return _resources(run_program(stack_values("dev")))


def _hold(stack: str, found: Resources) -> None:
    text = yaml.dump({**found}, Dumper=_Dumper, width=10_000, sort_keys=False)
    golden = ROOT / "tests" / "golden" / f"{stack}.yaml"
    if os.environ.get("UPDATE_GOLDEN") == "1":
        golden.write_text(text)
    assert golden.read_text() == text


def test_the_resources_of_dev_are_those_of_the_golden_file(dev: Resources) -> None:
    _hold("dev", dev)


@pytest.mark.parametrize("stack", ["local", "staging", "prod", "scale", "two-teams"])
def test_a_stack_differs_from_dev_as_its_golden_file_says(stack: str, dev: Resources, two_teams: Values) -> None:
    of_tests = {"scale": scale_values(), "two-teams": two_teams}
    values = of_tests[stack] if stack in of_tests else stack_values(stack)
    _hold(stack, difference(dev, _resources(run_program(values))))
