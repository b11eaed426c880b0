"""How the pods of a job agree on an attempt: one world of all their processes, formed through the job's folder.

    starts/<run id>/<attempt>/<process>   the roll: who is ready for the attempt, and how its last process ended
    starts/<run id>/<attempt>/key         the secret of its hosts
    starts/<run id>/<attempt>/wanted      a pod that is not in the attempt before waits for this one
    starts/<run id>/<attempt>/ended       the job ended before this attempt
    worlds/<run id>/<attempt>             who is in the attempt
    worlds/<run id>/newest                number of an attempt from which on to look for the newest

A pod that is ready for an attempt has no process left of an earlier one, and only one pod can create the file of an
attempt, so two worlds never run at once. A pod that took the place of another while a world was formed is not in it,
and asks for the next one.

The entries of the roll need no signature, because only the job's account can write them. So process 0 also leaves the
key of the attempt there, a secret by which its hosts recognize each other (`workloads.training.links`). It never
travels through JAX, whose coordination service answers everybody.

Files are read by their names, never listed, because gcsfs keeps listings of folders for as long as a process lives.
"""

import json
import secrets
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TypeVar

from etils import epath

from multislice_run.exit_codes import UNCOUNTED_CODES, ExitCode, cause_order, exit_name
from multislice_run.records.ledger import create, write_whole
from multislice_run.records.lines import parse

_Record = TypeVar("_Record")

MAX_PAUSE_SECONDS = 60.0
_READS_AT_ONCE = 32
_KEY_BYTES = 32


@dataclass(frozen=True)
class Ready:
    """A host that has begun an attempt, or a pod that waits to begin it with the others."""

    host: str
    address: str = ""
    """Name by which other slices reach it."""
    pod: str = ""
    """Id of the pod, see `pod_id`. Empty for a host without a supervisor."""
    code: int | None = None
    """Exit code of its process in the attempt before. None: the pod is new."""
    ended: float = 0.0
    """Unix time at which that process ended."""
    saved: bool = False
    """Whether that attempt saved a state that the next one continues from."""


@dataclass(frozen=True)
class World:
    """An attempt that its pods have agreed on."""

    number: int
    """Number of attempts before it."""
    slices: list[int]
    """Slices that take part, in order. Their processes are numbered in this order."""
    pods: list[str]
    """Ids of its pods in the order of their processes."""
    coordinator: str = ""
    """Address of its first host."""
    counted: int = 0
    """Restarts of processes so far that count towards `max_restarts`."""
    fruitless: int = 0
    """Restarts in a row after attempts that saved nothing."""
    cause: str = ""
    """Name of the exit code that ended the attempt before. Empty if pods were lost, or for the first attempt."""
    began: float = 0.0
    """Unix time at which it was agreed on."""


@dataclass(frozen=True)
class Ended:
    """The end of a job, for pods that wait for an attempt that does not come."""

    code: int
    """Exit code of the pods."""
    cause: str
    """Why, as a sentence."""
    time: float
    """Unix time of the end. Pods that began later belong to a restart of all pods."""


def pod_id(began: float, nonce: str) -> str:
    """Return the id of a pod that began at this Unix time."""
    return f"{int(1000 * began)}-{nonce}"


def began(pod: str) -> float:
    """Return the Unix time at which the pod with this id began."""
    return int(pod.partition("-")[0]) / 1000


class Roll:
    """Records which hosts are ready for one attempt, and keeps its key. Each host signs by its index in the job."""

    def __init__(self, storage: epath.Path, run_id: str, number: int):
        self._folder = storage / "starts" / run_id / str(number)
        self._key = self._folder / "key"
        self._number = number

    def sign(self, process: int, ready: Ready) -> bool:
        """Record that the host of `process` is ready. Process 0 also makes the key.

        False: a later pod has taken its place, and nothing changes.
        """
        before = _read(self._folder / str(process), Ready)
        if before and before.pod and ready.pod and began(before.pod) > began(ready.pod):
            return False
        self._folder.mkdir(parents=True, exist_ok=True)
        # The first slice may be missing.
        create(self._key, secrets.token_hex(_KEY_BYTES))
        write_whole(self._folder / str(process), json.dumps(asdict(ready)))
        return True

    def key(self) -> bytes:
        """Return the key of this attempt, which exists once a host is ready.

        Raises:
            ValueError: the file has other content.
        """
        key = bytes.fromhex(self._key.read_text())
        if len(key) != _KEY_BYTES:
            raise ValueError(f"{self._key}: expected {_KEY_BYTES} bytes, got {len(key)}")
        return key

    def signed(self, processes: Iterable[int]) -> dict[int, Ready]:
        with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
            found = pool.map(lambda process: (process, _read(self._folder / str(process), Ready)), processes)
            return {process: ready for process, ready in found if ready}

    def want(self) -> None:
        """Ask those in the attempt before to end it, because it cannot go on, or because more slices are there."""
        write_whole(self._folder / "wanted", "{}")

    def is_wanted(self) -> bool:
        """Return whether a pod asked for this attempt."""
        with suppress(FileNotFoundError):
            return bool((self._folder / "wanted").read_text())
        return False

    def end(self, ended: Ended) -> None:
        """Tell the pods that wait for this attempt that the job ends. The first word counts."""
        self._folder.mkdir(parents=True, exist_ok=True)
        write_whole(self._folder / "ended", json.dumps(asdict(ended)))

    def ended(self) -> Ended | None:
        """Return the end of the job before this attempt. None: there is none."""
        return _read(self._folder / "ended", Ended)

    def missing(self, slices: int, hosts: int) -> str:
        """Describe which of the `hosts` hosts in each of `slices` slices have not signed. Empty if all have."""
        count = slices * hosts
        signed = self.signed(range(count))
        names = [f"slice {index // hosts} host {index % hosts}" for index in range(count) if index not in signed]
        return f"{len(signed)} of {count} hosts began, missing: {', '.join(names)}" if names else ""

    def forget(self) -> None:
        """Remove this roll, but for its key, which hosts still read, and earlier ones, in the background."""
        threading.Thread(target=self._remove, name="rolls", daemon=True).start()

    def _remove(self) -> None:
        # Remaining files are harmless, and the next attempt tries again.
        with suppress(Exception):
            for folder in self._folder.parent.iterdir():
                if folder.name.isdecimal() and int(folder.name) < self._number:
                    folder.rmtree()
            for path in self._folder.iterdir():
                if path != self._key:
                    path.unlink()


class Worlds:
    """The worlds of one submission."""

    def __init__(self, storage: epath.Path, run_id: str):
        self._folder = storage / "worlds" / run_id

    def newest(self) -> World | None:
        """Return the newest world. None: there was none.

        Raises whatever storage raises, because a world that cannot be read must not be taken for none.
        """
        found, number = None, 0
        with suppress(FileNotFoundError):
            number = int((self._folder / "newest").read_text())
        while world := self.find(number):
            found, number = world, number + 1
        return found

    def find(self, number: int) -> World | None:
        """Return the world with this number. None: it is not there yet."""
        return _read(self._folder / str(number), World)

    def form(self, world: World) -> World:
        """Make `world` that of its number. Return the one that is there, because another pod may have been earlier."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if not create(self._folder / str(world.number), json.dumps(asdict(world))):
            found = self.find(world.number)
            assert found, "a file that cannot be created must be there"
            return found
        with suppress(Exception):
            # Only those who look later need it.
            write_whole(self._folder / "newest", str(world.number))
        return world


def next_number(before: World | None) -> int:
    """Return the number of the attempt after `before`."""
    return before.number + 1 if before else 0


def next_world(before: World | None, slices: Sequence[int], ready: Sequence[Ready], max_restarts: int) -> World | Ended:
    """Return the world after `before`, of the hosts `ready` in these slices, or the end of the job.

    The exit that caused the others decides. A lost pod counts for JobSet, so it does not count here.
    """
    pods, coordinator = [each.pod for each in ready], ready[0].address
    if before is None:
        return World(0, [*slices], pods, coordinator)
    exits = [(each.code, each.ended) for each in ready if each.code is not None]
    code = min(exits, key=lambda end: cause_order(*end))[0] if exits else None
    lost = any(each.code is None for each in ready) or not set(before.slices) <= set(slices)
    free = code is None or code in UNCOUNTED_CODES or (code == ExitCode.PEER_LOST and lost)
    counted = before.counted + (not free)
    cause = "" if code is None or (code == ExitCode.PEER_LOST and lost) else exit_name(code)
    if counted > max_restarts:
        used = f"the job has used up its {max_restarts} restarts: attempt {before.number + 1} ended with {cause}"
        return Ended(int(ExitCode.RESTARTS_USED_UP), used, time.time())
    fruitless = 0 if any(each.saved for each in ready) else before.fruitless + 1
    return World(next_number(before), [*slices], pods, coordinator, counted, fruitless, cause)


def outlived(ready: Mapping[int, Ready], before: World | None, hosts: int) -> list[int]:
    """Return the hosts of which only the entry is left: JobSet replaces all pods of a slice together, so that one with
    a pod that is not in `before` has no other pods."""
    known = {*before.pods} if before else set[str]()
    replaced = {index // hosts for index, each in ready.items() if each.pod not in known}
    return [index for index, each in ready.items() if each.pod in known and index // hosts in replaced]


def complete_slices(ready: Mapping[int, Ready], slices: int, hosts: int) -> list[int]:
    """Return the slices of which all hosts are ready."""
    return [index for index in range(slices) if all(index * hosts + host in ready for host in range(hosts))]


def pause_seconds(fruitless: int) -> float:
    """Return the pause before an attempt, after this number of restarts in a row that brought nothing: 0, 0, 1, 2, 4
    and so on, up to a minute."""
    return 0.0 if fruitless < 2 else min(MAX_PAUSE_SECONDS, 2.0 ** (fruitless - 2))


def _read(path: epath.Path, kind: type[_Record]) -> _Record | None:
    try:
        return parse(kind, json.loads(path.read_text()))
    except FileNotFoundError:
        return None
