"""Finds the stack that the user has selected with `pulumi stack select`, without running Pulumi.

Pulumi stores it in `workspaces/PROJECT-SHA1-workspace.json` in its home folder, where SHA1 is that of the path of
`Pulumi.yaml` (pkg/workspace in Pulumi's sources): a stack for each backend in `stacks`, and from older versions one for
all backends in `stack`.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import yaml

from cli import stack_file
from cli.answer import Halt
from infra.stack.project import PROJECT_FILE, find_project

STACK_VARIABLE = "MULTISLICE_STACK"


def default_stack() -> str:
    """Return the stack that Pulumi has selected in the project. Raise Halt with the choices if it has none."""
    if found := selected_stack(find_project(), os.environ):
        return found
    choices = ", ".join(stack_file.names()) or "(there are none: create one with `multislice init`)"
    raise Halt(
        f"expected a stack: pass --stack, set {STACK_VARIABLE} or run `pulumi stack select`; choose one of: {choices}"
    )


def selected_stack(project: Path, environment: Mapping[str, str]) -> str | None:
    """Return the name of the stack that Pulumi has selected in the folder `project`. None: it has selected none."""
    if name := environment.get("PULUMI_STACK"):
        return _short(name)
    file = project / PROJECT_FILE
    key = hashlib.sha1(str(file).encode(), usedforsecurity=False).hexdigest()
    workspace = _read(_home(environment) / "workspaces" / f"{_described(file).get('name')}-{key}-workspace.json")
    name = _mapping(workspace.get("stacks")).get(backend_url(project, environment) or "") or workspace.get("stack")
    return _short(name) if isinstance(name, str) and name else None


def backend_url(project: Path, environment: Mapping[str, str]) -> str | None:
    """Return the URL of the backend that Pulumi uses in the folder `project`. None: the user has not logged in."""
    return (
        environment.get("PULUMI_BACKEND_URL")
        or _mapping(_described(project / PROJECT_FILE).get("backend")).get("url")
        or _read(_home(environment) / "credentials.json").get("current")
    )


def _home(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("PULUMI_HOME") or Path.home() / ".pulumi")


def _described(file: Path) -> dict[str, Any]:
    return _mapping(yaml.safe_load(file.read_text()))


def _short(name: str) -> str:
    """Return the name without organization and project."""
    return name.rpartition("/")[2]


def _read(file: Path) -> dict[str, Any]:
    try:
        return _mapping(json.loads(file.read_text()))
    except (OSError, ValueError):
        return {}  # Pulumi itself reports a file that it cannot read.


def _mapping(value: object) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}
