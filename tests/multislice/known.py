"""A stack as calls see it, with an API server that answers from a dictionary and a folder for a bucket."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import fsspec

from infra.api_server import ApiError, ApiServer, Json
from infra.calls import CallSettings, call_settings
from infra.settings import parse
from multislice.place import Place
from tests.infra.recording import stack_values

NAMESPACE = "research"
UID = "11111111-2222-3333-4444-555555555555"


@dataclass
class Objects:
    """What the API server has, by path."""

    found: dict[str, Json] = field(default_factory=dict[str, Json])
    refuses: str | None = None

    def request(self, method: str, path: str, body: Any = None, query: Any = None, content_type: str = "") -> Json:
        if method == "POST":
            if self.refuses:
                raise ApiError(403, "Forbidden", self.refuses)
            body["metadata"]["uid"] = UID
            self.found[f"{path}/{body['metadata']['name']}"] = body
            return body
        return {"items": [found for name, found in self.found.items() if name.startswith(path)]}

    def find(self, path: str, query: Any = None) -> Json | None:
        return self.found.get(path)

    def delete(self, path: str, options: Json) -> None:
        self.found.pop(path, None)


def settings(**teams: Any) -> CallSettings:
    """What the stack `local` tells of calls, with other teams if some are named."""
    values = stack_values("local")
    values["teams"] |= {name: {"namespace": namespace, "quota": {"trillium": 0}} for name, namespace in teams.items()}
    return CallSettings.model_validate(call_settings(parse(values), "trainer@sha256:0"))


def place(folder: Path, objects: Objects, **teams: Any) -> Place:
    """The stack `local` with its bucket below `folder`."""
    bucket = fsspec.filesystem("dir", path=str(folder), target_protocol="file")
    return Place("local", cast(ApiServer, objects), settings(**teams), bucket)
