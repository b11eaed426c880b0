"""A stack as calls see it, with an API server that answers from a dictionary and a folder for a bucket."""

import base64
import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import fsspec

from infra.cluster.kubernetes import ApiError, ApiServer, Json
from infra.stack.job_objects import call_spec_of
from infra.stack.names import JOBSETS
from infra.stack.published import Published, join_records
from infra.stack.settings.read import parse
from multislice.connection import StackConnection
from multislice.packing import Project, pack
from multislice.submission import CallRequest
from tests.infra.recording import stack_values
from workloads.call.folder import ARGUMENTS, FUNCTION, RETURNED, Seals
from workloads.call.parcel import read_parcel
from workloads.spec import CALL_KEY_VARIABLE

NAMESPACE = "research"
REQUEST = CallRequest("trillium", 2, None, "normal", 24, False)
(PACKED,) = pack(len, [(("abc",), {})], Project([]))
UID = "11111111-2222-3333-4444-555555555555"


@dataclass
class Objects:
    """What the API server has, by path."""

    found: dict[str, Json] = field(default_factory=dict[str, Json])
    keys: dict[str, str] = field(default_factory=dict[str, str])
    """Content of Secrets, by the call that owns them. The API server does not return it."""
    refuses: str | None = None
    fails: dict[str, BaseException] = field(default_factory=dict[str, BaseException])
    """What requests raise, by method, or by a part of the path."""
    on_create: Callable[[Json], None] | None = None
    """Called with every JobSet that has its Secret, which its pods wait for."""

    def request(self, method: str, path: str, body: Any = None, query: Any = None, content_type: str = "") -> Json:
        if method == "POST":
            if self.refuses:
                raise ApiError(403, "Forbidden", self.refuses)
            if body["kind"] == "Secret":
                return self._keep(body)
            body["metadata"]["uid"] = UID
            self.found[f"{path}/{body['metadata']['name']}"] = body
            # After it is made, for what is lost on the way back is the answer.
            self._fail(method, path)
            return body
        self._fail(method, path)
        return {"items": [found for name, found in self.found.items() if name.startswith(path)]}

    def _keep(self, secret: Json) -> Json:
        self._fail("POST", "/secrets")
        (owner,) = secret["metadata"]["ownerReferences"]
        self.keys[owner["name"]] = secret["stringData"][CALL_KEY_VARIABLE]
        if self.on_create:
            self.on_create(self.found[f"{JOBSETS.format(secret['metadata']['namespace'])}/{owner['name']}"])
        return secret

    def find(self, path: str, query: Any = None) -> Json | None:
        self._fail("GET", path)
        return self.found.get(path)

    def delete(self, path: str, options: Json) -> None:
        self._fail("DELETE", path)
        self.found.pop(path, None)

    def _fail(self, method: str, path: str) -> None:
        for what, fault in self.fails.items():
            if what == method or what in path:
                raise fault


def settings(**teams: Any) -> Published:
    """Return what the stack `local` publishes for calls, with the teams that are given in addition."""
    values = stack_values("local")
    values["teams"] |= {name: {"namespace": namespace, "quota": {"trillium": 0}} for name, namespace in teams.items()}
    read = parse(values)
    return join_records([Published.of("local", read, team, "trainer@sha256:0") for team in read.teams])


@dataclass
class Bucket:
    """A folder as object storage, which may fail."""

    folder: Path
    fails: dict[str, BaseException] = field(default_factory=dict[str, BaseException])
    """What a file system's function raises, by its name."""

    def __getattr__(self, name: str) -> Any:
        if name in self.fails:
            raise self.fails[name]
        return getattr(fsspec.filesystem("dir", path=str(self.folder), target_protocol="file"), name)


def connection(folder: Path, objects: Objects, **teams: Any) -> StackConnection:
    """The stack `local` with its bucket below `folder`."""
    return StackConnection("local", cast(ApiServer, objects), settings(**teams), Bucket(folder), None)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def carries_out(stack: StackConnection) -> Callable[[Json], None]:
    """What hosts do with a call, at once: its value or its error is there when the JobSet is made."""

    keys = cast(Objects, stack.api).keys

    def carry_out(jobset: Json) -> None:
        spec = call_spec_of(jobset)
        assert spec
        folder = stack.folder(jobset["metadata"]["namespace"], spec.id)
        _, parts = read_parcel(spec, folder)
        arguments, named = pickle.loads(parts[ARGUMENTS])
        seals, kind = Seals.of(spec, folder, keys[spec.id]), "Completed"
        try:
            seals.write(RETURNED, pickle.dumps(pickle.loads(parts[FUNCTION])(*arguments, **named)))
        except Exception as error:
            kind, pickled = "Failed", base64.b64encode(pickle.dumps(error)).decode()
            record = {"host": "slice-0-0", "time": 1.0, "type": "", "message": "", "traceback": []}
            seals.write_raised(0, json.dumps({**record, "exception": pickled}).encode())
        jobset["status"] = {"terminalState": kind, "conditions": [{"type": kind, "status": "True"}]}

    return carry_out
