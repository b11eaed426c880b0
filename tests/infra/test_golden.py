"""Every resource of a stack as it is declared, compared with a file; `UPDATE_GOLDEN=1` accepts a change.

`dev.yaml` has the resources of `dev` whole. The files of the other stacks have what differs from it, so that a field
that changes in all stacks changes one line. `changes.yaml` has what single settings change in `dev`.
"""

import json
import os
import re
from collections.abc import Mapping
from itertools import groupby
from typing import Any

import pytest
import yaml

from tests.infra.difference import Resources, difference
from tests.infra.recording import ROOT, Recording, Registration, Values, run_program, scale_values, stack_values
from tests.infra.spoiling import edited
from tests.infra.stack.settings.test_jobs import CONTAINER

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
    return ({"options": kept} if kept else {}) | {"inputs": unfolded(found.inputs)}


def _apart_from_number(kind: str, name: str, values: Values) -> str:
    inputs = values["inputs"]
    named = {"name": _unnumbered(inputs["name"])} if isinstance(inputs.get("name"), str) else {}
    return json.dumps([kind, _unnumbered(name), values | {"inputs": inputs | named}])


def _unnumbered(name: str) -> str:
    return re.sub(r"-\d+$", "", name)


def _in_numbers(name: str) -> tuple[str, int, str]:
    return _unnumbered(name), len(name), name


def unfolded(value: Any, key: str = "") -> Any:
    """The value in the order of its keys, with the JSON and YAML of its texts read, equal slices described once."""
    match value:
        case dict():
            return _once({name: unfolded(value[name], name) for name in sorted(value, key=_in_numbers)})
        case list():
            return [unfolded(each) for each in value]
        case str() if value.startswith("{") and not value.startswith("{{"):
            return {"json": unfolded(json.loads(value))}
        case str() if key.endswith("Yaml"):
            return {"yaml": unfolded(yaml.safe_load(value))}
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


def dumped(found: Mapping[str, Any]) -> str:
    return yaml.dump({**found}, Dumper=_Dumper, width=10_000, sort_keys=False)


def _hold(stack: str, found: Resources) -> None:
    text = dumped(found)
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


_GROUP, _QUOTA = "slices.trillium", "teams.research.quota"
_SPARE = {"generation": "v6e", "topology": "2x4", "count": 2, "capacity": "spot", "zone": "us-east5-a"}
_IRONWOOD = {f"{_GROUP}.generation": "7x", f"{_GROUP}.topology": "2x2x2", "job.mesh": {"replica": 2, "fsdp": 16}}
_RESERVED = {"kind": "reservation", "name": "chips"}
_OTHERS = "europe-docker.pkg.dev/my-project/tools/sweep@sha256:" + 64 * "3"
_RUN = {"preset": "tiny", "slices": {"group": "trillium", "count": 1}}
CHANGES: Mapping[str, Values] = {
    "a slice more": {f"{_GROUP}.count": 3},
    "a group in a zone of its own": {
        "slices.spare": _SPARE,
        f"{_QUOTA}.spare": 16,
        "job.slices": {"group": "trillium", "count": 2, "fallback": ["spare"]},
    },
    "queued slices": {f"{_GROUP}.capacity": {"kind": "queued", "max_run_hours": 4}, "job.slices.count": 1},
    "stated patience": {
        "scheduling": {"ready_minutes": 7, "recovery_minutes": 9, "requeueing": {"limit": 0, "base_seconds": 5}}
    },
    "a reservation": {f"{_GROUP}.capacity": _RESERVED},
    "a block of a reservation": _IRONWOOD | {f"{_GROUP}.capacity": _RESERVED | {"block": "b"}},
    "a part of a reservation of another project": _IRONWOOD
    | {f"{_GROUP}.capacity": _RESERVED | {"project": "bank", "block": "b", "sub_block": "s"}},
    "topology-aware": {"scheduling.placement": "topology-aware"},
    "a team on hold": {"teams.research.admission": "hold"},
    "a paused job": {"job.paused": True},
    "the network of the host": {"job.host_network": True},
    "no monitoring": {"monitoring.enabled": False},
    "alerts for the billing administrators": {
        "budget.alerts": {"billing_account": "012345-6789AB-CDEF01", "usd_per_month": 30000}
    },
    "another price": {"prices.usd_per_chip_hour.trillium": 3.0},
    "an image by digest": {"image": {"reference": f"trainer@sha256:{64 * '1'}"}},
    "no jobs": {"job": None, "jobs": {}},
    "several jobs": {
        "job": None,
        "jobs": {
            "tiny": _RUN | {"secrets": ["HF_TOKEN"]},
            "small": _RUN | {"secrets": []},
            "serve": CONTAINER | {"team": "research", "slices": _RUN["slices"], "image": _OTHERS},
        },
        "secrets": {"HF_TOKEN": "canary", "WANDB_API_KEY": "canary"},
    },
    "a sweep": {"job": None, "jobs": {"study": _RUN | {"sweep": {"training.seed": [0, 1]}}}},
}
_CHANGED = ROOT / "tests" / "golden" / "changes.yaml"


@pytest.mark.parametrize("change", CHANGES)
def test_a_setting_changes_what_the_golden_file_says_and_nothing_else(change: str, dev: Resources) -> None:
    values = edited(stack_values("dev"), CHANGES[change])
    kept = {section: value for section, value in values.items() if value is not None}
    found = difference(dev, _resources(run_program(kept, secret=["secrets"])))
    golden = yaml.load(_CHANGED.read_text(), yaml.CSafeLoader) if _CHANGED.exists() else {}
    if os.environ.get("UPDATE_GOLDEN") == "1":
        _CHANGED.write_text(dumped({name: {**golden, change: found}.get(name, {}) for name in CHANGES}))
    else:
        assert golden.keys() == CHANGES.keys()
        assert dumped(golden[change]) == dumped(found)
