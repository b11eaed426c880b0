"""The permissions that the stacks need and those that Google's roles give, from `permissions.yaml`."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from sandbox import programs
from sandbox.programs import OPERATORS
from sandbox.providers.charts import render, type_token
from tests.infra.recording import ROOT

_TABLE: Any = yaml.safe_load(Path(__file__).with_name("permissions.yaml").read_text())
_VERBS = {"create": "create", "read": "get", "update": "update", "delete": "delete"}

USES = {use: frozenset(permissions.split()) for use, permissions in _TABLE["uses"].items()}
ROLES = frozenset(_TABLE["roles"])


def granted(roles: Iterable[str]) -> set[str]:
    """The permissions that these roles of Google give together, as far as the project needs any of them."""
    rows = [row for role in roles for row in _TABLE["roles"][role].items()]
    return {f"{noun}.{verb}" for verbs, nouns in rows for noun in nouns.split() for verb in verbs.split()}


def needed(*operations: str) -> set[str]:
    """What an account needs to do these operations with each resource that a stack or a chart declares."""
    return {each for declared in declared_types() for operation in operations for each in _of(declared, operation)}


@cache
def declared_types() -> frozenset[str]:
    """The types that the golden files and the charts declare, as Pulumi names them."""
    goldens = (ROOT / "tests" / "golden").rglob("*.yaml")
    declared = {
        found for path in goldens for found in re.findall(r"^((?:gcp|kubernetes):\S+) ", path.read_text(), re.M)
    }
    in_charts = (each for chart in OPERATORS for each in render({"chart": chart}, chart, programs.found()))
    return frozenset(declared - {"kubernetes:helm.sh/v4:Chart"}) | {type_token(each) for each in in_charts}


def _of(declared: str, operation: str) -> list[str]:
    if declared.startswith("gcp:"):
        return _TABLE["needs"][declared].get(operation, "").split()
    _, group, kind = declared.split(":")
    if kind in _TABLE["unlisted"]:
        return []
    custom = "." in group and not group.partition("/")[0].endswith(".k8s.io")
    return [f"container.{'thirdPartyObjects' if custom else _plural(kind)}.{_VERBS[operation]}"]


def _plural(kind: str) -> str:
    noun = kind[0].lower() + kind[1:]
    if noun.endswith("y"):
        return f"{noun.removesuffix('y')}ies"
    return f"{noun}es" if noun.endswith("s") else f"{noun}s"
