"""Views of the group, and their register in the job's storage.

A view is a numbered membership: the slices that train together until the next view. Each view is a file that is created
only if it does not exist, so whoever comes first decides what view N is, even while the network is split. No file of
the register is ever changed.

    groups/<run id>-<restart>/views/<number>.json     a view, with the addresses of its hosts
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Self

from etils import epath
from fsspec.core import url_to_fs


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
    """For each slice that is joining, the slice that gives it the training state."""

    @property
    def leader(self) -> HostId:
        return HostId(self.led_by, 0)

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
        self._folder = storage / "groups" / self.group / "views"

    def newest(self, after: int = 0) -> Registered | None:
        """Return the newest view with a number above `after`. `None` if there is none."""
        number, found = after, ""
        # On a local file system, a file is empty for a moment after it is created.
        while self._path(number + 1).exists() and (text := self._path(number + 1).read_text()):
            number, found = number + 1, text
        return Registered.of_json(json.loads(found)) if found else None

    def create(self, registered: Registered) -> bool:
        """Create a view, and return whether it was the first of its number."""
        path = self._path(registered.view.number)
        path.parent.mkdir(parents=True, exist_ok=True)
        # epath cannot create a file only if it does not exist. The file systems below it can.
        files, inside = url_to_fs(str(path))
        try:
            files.pipe_file(inside, json.dumps(registered.to_json()).encode(), mode="create")
        except FileExistsError:
            return False
        return True

    def _path(self, number: int) -> epath.Path:
        return self._folder / f"{number}.json"
