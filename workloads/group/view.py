"""Views of the group, and their register in the job's storage.

A view is a numbered membership: the slices that train together until the next view. Each view is a file that is created
only if it does not exist, so whoever comes first decides what view N is, even while the network is split. No file of
the register is ever changed.

    groups/<run id>-<restart>/views/<number>.json     a view, with the addresses of its hosts
"""

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from etils import epath
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

STORAGE = -1
"""Donor of a slice at which the states of all others arrived damaged: the leader saves the state, and the slice reads
it from storage."""


class HostId(NamedTuple):
    """A host of the group."""

    slice: int
    worker: int
    """Index of the host in its slice."""


@dataclass(frozen=True)
class Endpoint:
    """Where one process listens. A host that starts again is another process with another token."""

    token: str
    control: str
    """`host:port` for the hosts that this process leads."""
    data: str
    """`host:port` for the gradients and the state of the same host in other slices."""


@dataclass(frozen=True)
class View:
    """The slices that train together."""

    number: int
    slices: tuple[int, ...]
    """Ascending, including those that are joining."""
    led_by: int
    """Slice whose first host made the view and leads it."""
    donors: Mapping[int, int] = field(default_factory=dict[int, int])
    """For each slice that is joining, the slice that gives it the training state, or `STORAGE`."""

    @property
    def leader(self) -> HostId:
        return HostId(self.led_by, 0)

    def change_since(self, earlier: "View | None", trained: bool) -> str:
        """Return which slices were lost and joined since an earlier view, `None` if the group begins.

        A slice that had the state and gets it again has left and joined in between. `trained` is whether there was a
        round in the earlier view, so that the slices that joined in it had the state too.
        """
        if earlier is None:
            return "begun"
        were, are = {*earlier.slices}, {*self.slices}
        again = {*self.donors} & (were if trained else were - {*earlier.donors})
        lost, joined = sorted(were - are | again), sorted(are - were | again)
        change = [f"lost {one}" for one in lost] + [f"joined {one}" for one in joined]
        return ", ".join(change) or f"led by {self.led_by}"

    def hosts(self, per_slice: int) -> list[HostId]:
        return [HostId(one, worker) for one in self.slices for worker in range(per_slice)]


@dataclass(frozen=True)
class Registered:
    """A view and where its hosts listen."""

    view: View
    endpoints: Mapping[HostId, Endpoint]

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.view.number,
            "slices": list(self.view.slices),
            "led_by": self.view.led_by,
            "donors": [list(pair) for pair in self.view.donors.items()],
            "endpoints": [[*host, asdict(endpoint)] for host, endpoint in self.endpoints.items()],
        }

    @classmethod
    def of_json(cls, facts: Mapping[str, Any]) -> Self:
        donors = {one: donor for one, donor in facts["donors"]}
        view = View(facts["number"], tuple(facts["slices"]), facts["led_by"], donors)
        return cls(view, {HostId(one, worker): Endpoint(**at) for one, worker, at in facts["endpoints"]})


class Register:
    """The views of one attempt of a job."""

    def __init__(self, storage: epath.Path, run_id: str, restart: int):
        self.group = f"{run_id}-{restart}"
        """Name of the group."""
        self.folder = storage / "groups" / self.group

    def newest(self, after: int = 0) -> Registered | None:
        """Return the newest view with a number above `after`. `None` if there is none."""
        number = after
        while self._path(number + 1).exists():
            number += 1
        return None if number == after else Registered.of_json(json.loads(self._path(number).read_text()))

    def create(self, registered: Registered) -> bool:
        """Create a view, and return whether it was the first of its number."""
        path = self._path(registered.view.number)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            _create(str(path), json.dumps(registered.to_json()).encode())
        except FileExistsError:
            return False
        return True

    def _path(self, number: int) -> epath.Path:
        return self.folder / "views" / f"{number}.json"


def _create(path: str, content: bytes) -> None:
    """Create a file with all of its content.

    Raises:
        FileExistsError: it exists.
    """
    # epath cannot create a file only if it does not exist. fsspec can in object stores, but on a local file system two
    # processes that look at the same moment both create it.
    files, inside = url_to_fs(path)
    if not isinstance(files, LocalFileSystem):
        files.pipe_file(inside, content, mode="create")
        return
    whole = f"{inside}.{secrets.token_hex(8)}"
    try:
        Path(whole).write_bytes(content)
        os.link(whole, inside)
    finally:
        Path(whole).unlink(missing_ok=True)
