"""What exists in the sandbox's Google Cloud: one JSON file for each resource.

The folder is the cloud: a file edited or removed by hand is a change behind the program's back,
and shows as drift.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sandbox.providers.values import Object


@dataclass(frozen=True)
class Cloud:
    """The resources in one folder."""

    folder: Path

    def find(self, resource_type: str, resource_id: str) -> Object | None:
        """Properties of a resource, or None."""
        path = self._path(resource_type, resource_id)
        return json.loads(path.read_text())["properties"] if path.exists() else None

    def every(self, resource_type: str) -> Iterator[tuple[str, Object]]:
        """Id and properties of each resource of a type."""
        for path in sorted(self.folder.glob(f"{_slug(resource_type)}-*.json")):
            record = json.loads(path.read_text())
            yield record["id"], record["properties"]

    def keep(self, resource_type: str, resource_id: str, properties: Object) -> None:
        """Write a resource, new or changed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(resource_type, resource_id)
        draft = path.with_suffix(".draft")
        draft.write_text(
            json.dumps({"type": resource_type, "id": resource_id, "properties": properties}, indent=2) + "\n"
        )
        draft.replace(path)

    def remove(self, resource_type: str, resource_id: str) -> None:
        """Remove a resource, if it is there."""
        self._path(resource_type, resource_id).unlink(missing_ok=True)

    def stock_outs(self) -> frozenset[str]:
        """Names of the node pools that Google has no machines for now: the lines of the file `stock-out`."""
        path = self.folder / "stock-out"
        return frozenset(path.read_text().split()) if path.exists() else frozenset()

    def _path(self, resource_type: str, resource_id: str) -> Path:
        digest = hashlib.sha256(resource_id.encode()).hexdigest()[:8]
        # The last part of an id tells resources apart for a reader; the digest does it for the program.
        readable = re.sub(r"[^\w.-]+", "-", resource_id.rpartition("/")[2])[:60]
        return self.folder / f"{_slug(resource_type)}-{readable}-{digest}.json"


def _slug(resource_type: str) -> str:
    """`gcp:container/nodePool:NodePool` -> `container.NodePool`."""
    _, module, kind = resource_type.split(":")
    return f"{module.partition('/')[0]}.{kind}"
