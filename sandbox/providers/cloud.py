"""The resources in the sandbox's Google Cloud, one JSON file for each, and the types of resources.

The folder is the cloud: a file that is edited or removed by hand is a change outside the program and shows up as drift.
The table of types is `resource_types.yaml`, which explains its columns.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from infra.cluster.kubernetes import Json
from sandbox.providers.plugin import Refusal
from sandbox.providers.values import Change, at, changes, with_value


@dataclass(frozen=True)
class Cloud:
    """The resources in one folder."""

    folder: Path

    def find(self, resource_type: str, resource_id: str) -> Json | None:
        path = self._path(resource_type, resource_id)
        return json.loads(path.read_text())["properties"] if path.exists() else None

    def every(self, resource_type: str) -> Iterator[tuple[str, Json]]:
        for path in sorted(self.folder.glob(f"{_slug(resource_type)}-*.json")):
            record = json.loads(path.read_text())
            yield record["id"], record["properties"]

    def keep(self, resource_type: str, resource_id: str, properties: Json) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(resource_type, resource_id)
        draft = path.with_suffix(".draft")
        record = {"type": resource_type, "id": resource_id, "properties": properties}
        draft.write_text(json.dumps(record, indent=2) + "\n")
        draft.replace(path)

    def remove(self, resource_type: str, resource_id: str) -> None:
        self._path(resource_type, resource_id).unlink(missing_ok=True)

    def stock_outs(self) -> frozenset[str]:
        """Return the names of the node pools that Google has no machines for, which are the lines of the file
        `stock-out`."""
        path = self.folder / "stock-out"
        return frozenset(path.read_text().split()) if path.exists() else frozenset()

    def _path(self, resource_type: str, resource_id: str) -> Path:
        digest = hashlib.sha256(resource_id.encode()).hexdigest()[:8]
        # The last part of the id is for readers; the digest makes the name unique.
        readable = re.sub(r"[^\w.-]+", "-", resource_id.rpartition("/")[2])[:60]
        return self.folder / f"{_slug(resource_type)}-{readable}-{digest}.json"


def _slug(resource_type: str) -> str:
    """`gcp:container/nodePool:NodePool` -> `container.NodePool`."""
    _, module, kind = resource_type.split(":")
    return f"{module.partition('/')[0]}.{kind}"


CLUSTER = "gcp:container/cluster:Cluster"
NODE_POOL = "gcp:container/nodePool:NodePool"
SUBNETWORK = "gcp:compute/subnetwork:Subnetwork"
BUCKET = "gcp:storage/bucket:Bucket"
PROJECT_MEMBER = "gcp:projects/iAMMember:IAMMember"
PROJECT_SERVICE = "gcp:projects/service:Service"
RESOURCE_POLICY = "gcp:compute/resourcePolicy:ResourcePolicy"


@dataclass(frozen=True)
class ResourceType:
    """One row of the table."""

    id: str
    replaces: tuple[str, ...]
    name: str | None = None
    outputs: Json = field(default_factory=dict[str, Any])
    defaults: Json = field(default_factory=dict[str, Any])
    replaces_when_off: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()
    inert: tuple[str, ...] = ()
    in_place: tuple[str, ...] = ()
    computed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    answers: Mapping[str, Json] = field(default_factory=dict[str, Json])

    def differences(self, before: Json, after: Json) -> Iterator[Change]:
        """Yield the changes that an update must make, without values that the cloud computes if the program sets none.

        The plugin treats an unset number or switch as 0 or false.
        """
        for change in changes(before, after):
            computed = change.kind == "DELETE" and change.path in self.computed
            unset = change.kind != "UPDATE" and at(after if change.kind == "ADD" else before, change.path) in (0, False)
            if not computed and not unset:
                yield change

    def is_replaced_by(self, change: Change, before: Json, after: Json) -> bool:
        if change.path in self.replaces_when_off:
            return at(before, change.path) is True
        if change.path in self.blocks and change.kind != "UPDATE":
            return True
        # An object that is added or removed as a whole is one change, but its content also counts.
        whole = after if change.kind == "ADD" else before
        content = [path for path in self.replaces if path.startswith(f"{change.path}.") and change.kind != "UPDATE"]
        return any(map(change.is_under, self.replaces)) or any(at(whole, path) for path in content)

    def settled(self, before: Json, given: Json) -> Json:
        """Return the properties that an update from `before` to `given` results in."""
        for path in self.inert:
            given = with_value(given, path, at(before, path))
        for path in (*self.computed, *self.kept):
            if at(given, path) is None:
                given = with_value(given, path, at(before, path))
        return given

    def answered(self, properties: Json) -> Json:
        """Return the properties as the cloud keeps them, which may differ from their declaration."""
        for cause, values in self.answers.items():
            if at(properties, cause):
                for path, value in values.items():
                    properties = with_value(properties, path, value)
        return properties


def row(resource_type: str) -> ResourceType:
    """Return the row of a type, or a general one."""
    if resource_type in _table():
        return _table()[resource_type]
    plural = f"{resource_type.rpartition(':')[2]}s"
    return ResourceType(f"projects/{{project}}/{plural}/{{name}}", ("name", "project", "location", "region"), "name")


def fill(template: Any, facts: Json) -> Any:
    """Return `template` with `{names}` replaced.

    Raises Refusal if a name has no value, so a required field is not set.
    """
    if isinstance(template, dict):
        return {key: fill(item, facts) for key, item in template.items()}
    try:
        return str(template).format_map(facts)
    except KeyError as error:
        raise Refusal(f"{error.args[0]}: required field is not set") from None


@cache
def _table() -> dict[str, ResourceType]:
    rows: Any = yaml.load((Path(__file__).parent / "resource_types.yaml").read_text(), yaml.CSafeLoader)
    types: dict[str, ResourceType] = {}
    for name, columns in rows["types"].items():
        paths = {key: tuple(_flat(item)) for key, item in columns.items() if isinstance(item, list)}
        types[name] = ResourceType(**(columns | paths))
    return types


def _flat(paths: list[Any]) -> Iterator[str]:
    """Flatten nested lists: the table writes several paths in a line and shares some."""
    for entry in paths:
        yield from [entry] if isinstance(entry, str) else _flat(entry)
