"""Reads the table of Google Cloud resource types, `resource_types.yaml`, which explains its columns."""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from sandbox.providers.plugin import Refusal
from sandbox.providers.values import Change, Object

CLUSTER = "gcp:container/cluster:Cluster"
NODE_POOL = "gcp:container/nodePool:NodePool"
BUCKET = "gcp:storage/bucket:Bucket"
RESOURCE_POLICY = "gcp:compute/resourcePolicy:ResourcePolicy"


@dataclass(frozen=True)
class ResourceType:
    """One row of the table."""

    id: str
    replaces: list[Any]
    """Paths, or lists of paths."""
    name: str | None = None
    outputs: Object = field(default_factory=dict[str, Any])
    defaults: Object = field(default_factory=dict[str, Any])
    blocks: list[str] = field(default_factory=list[str])
    inert: list[str] = field(default_factory=list[str])

    def is_replaced_by(self, change: Change) -> bool:
        """Whether this change needs a new resource."""
        if change.path in self.blocks:
            return change.kind != "UPDATE"
        paths = [path for entry in self.replaces for path in ([entry] if isinstance(entry, str) else entry)]
        return any(change.is_under(path) for path in paths)


def row(resource_type: str) -> ResourceType:
    """The row of a type, or a general one."""
    if resource_type in _table():
        return ResourceType(**_table()[resource_type])
    plural = f"{resource_type.rpartition(':')[2]}s"
    return ResourceType(f"projects/{{project}}/{plural}/{{name}}", ["name", "project", "location", "region"], "name")


def filled(template: Any, facts: Object) -> Any:
    """`template` with `{names}` replaced.

    Raises:
        Refusal: a name has no value: a required field is not set.
    """
    if isinstance(template, dict):
        return {key: filled(item, facts) for key, item in template.items()}
    try:
        return str(template).format_map(facts)
    except KeyError as error:
        raise Refusal(f"{error.args[0]}: required field is not set") from None


@cache
def _table() -> dict[str, Object]:
    return yaml.safe_load((Path(__file__).parent / "resource_types.yaml").read_text())["types"]
