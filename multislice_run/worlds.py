"""How the pods of a job agree on an attempt: one world of all their processes, formed through the job's folder.

    starts/<run id>/<attempt>/<process>   the roll: who is ready for the attempt, and how its last process ended
    starts/<run id>/<attempt>/key         the secret of its hosts
    starts/<run id>/<attempt>/wanted      a pod that the attempt before does not know waits for this one
    worlds/<run id>.json                  the newest world, written by process 0 when all are ready

A pod that is ready for an attempt has no process left of an earlier one, so two worlds never run at once. A pod that
took the place of another while a world was formed is not in it, and asks for the next one.

The entries of the roll need no signature, because only the job's account can write them. So process 0 also leaves the
key of the attempt there, a secret by which its hosts recognize each other (`workloads.training.links`). It never
travels through JAX, whose coordination service answers everybody.

Files are read by their names, never listed, because gcsfs keeps listings of folders for as long as a process lives.
"""

import json
import secrets
import threading
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TypeVar

from etils import epath

from multislice_run.ledger import write_whole
from multislice_run.pod import FATAL_CODES, UNCOUNTED_CODES, ExitCode, cause_order, exit_name

_Record = TypeVar("_Record")

LONGEST_PAUSE_SECONDS = 60.0
_READS_AT_ONCE = 32
_KEY_BYTES = 32

ENDS_THE_POD = (ExitCode.DONE, ExitCode.BAD_HOST, *FATAL_CODES)
"""Exit codes of a process after which its pod ends too: nothing is left to do, or the pod has to leave its node."""


@dataclass(frozen=True)
class Ready:
    """A host that has begun an attempt, or a pod that waits to begin it with the others."""

    host: str
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
    pods: list[str]
    """Ids of its pods in the order of their processes."""
    counted: int = 0
    """Restarts of processes so far that count towards `max_restarts`."""
    fruitless: int = 0
    """Restarts in a row after attempts that saved nothing."""
    cause: str = ""
    """Name of the exit code that ended the attempt before. Empty if pods were lost, or for the first attempt."""
    ends: int | None = None
    """Exit code of all pods, if there is no such attempt because the job ends. None: it begins."""


def pod_id(began: float, nonce: str) -> str:
    """Return the id of a pod that began at this Unix time, so that ids can be compared by `is_later`."""
    return f"{int(1000 * began)}-{nonce}"


def is_later(pod: str, other: str) -> bool:
    """Return whether `pod` began later than `other`, which has the same place in the job."""
    return int(pod.partition("-")[0]) > int(other.partition("-")[0])


class Roll:
    """Records which hosts are ready for one attempt, and keeps its key. Each host signs by its process index."""

    def __init__(self, storage: epath.Path, run_id: str, number: int):
        self._folder = storage / "starts" / run_id / str(number)
        self._key = self._folder / "key"
        self._number = number

    def sign(self, process: int, ready: Ready) -> bool:
        """Record that the host of `process` is ready. Process 0 also makes the key.

        False: a later pod has taken its place, and nothing changes.
        """
        before = _read(self._folder / str(process), Ready)
        if before and before.pod and ready.pod and is_later(before.pod, ready.pod):
            return False
        self._folder.mkdir(parents=True, exist_ok=True)
        if process == 0:
            write_whole(self._key, secrets.token_hex(_KEY_BYTES))
        write_whole(self._folder / str(process), json.dumps(asdict(ready)))
        return True

    def key(self) -> bytes:
        """Return the key of this attempt, which exists once all hosts are ready.

        Raises:
            ValueError: the file has other content.
        """
        key = bytes.fromhex(self._key.read_text())
        if len(key) != _KEY_BYTES:
            raise ValueError(f"{self._key}: expected {_KEY_BYTES} bytes, got {len(key)}")
        return key

    def signed(self, processes: Iterable[int], without: Collection[str] = ()) -> dict[int, Ready]:
        """Return those of `processes` that are ready, except for the pods `without`."""
        with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
            found = pool.map(lambda process: (process, _read(self._folder / str(process), Ready)), processes)
            return {process: ready for process, ready in found if ready and ready.pod not in without}

    def want(self) -> None:
        """Ask those in the attempt before to end it, because it cannot go on."""
        self._folder.mkdir(parents=True, exist_ok=True)
        write_whole(self._folder / "wanted", "{}")

    def is_wanted(self) -> bool:
        """Return whether a pod asked for this attempt."""
        # Whatever storage raises: it is asked again.
        with suppress(Exception):
            return bool(self._folder.joinpath("wanted").read_text())
        return False

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


def newest_world(storage: epath.Path, run_id: str) -> World | None:
    """Return the newest world of a submission. None: there was none.

    Raises whatever storage raises, because a world that cannot be read must not be taken for none.
    """
    return _read(_world_file(storage, run_id), World)


def write_world(storage: epath.Path, run_id: str, world: World) -> None:
    """Make `world` the newest one."""
    file = _world_file(storage, run_id)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps(asdict(world)))


def next_world(before: World | None, ready: Mapping[int, Ready], max_restarts: int) -> World:
    """Return the world after `before`, in which all processes are ready.

    The exit that caused the others decides. A lost pod counts for JobSet, so it does not count here.
    """
    pods = [ready[process].pod for process in sorted(ready)]
    number = next_number(before)
    if before is None:
        return World(number, pods)
    exits = [(each.code, each.ended) for each in ready.values() if each.code is not None]
    if last := [code for code, _ in exits if code in ENDS_THE_POD]:
        # Others have completed, so that only a restart of all pods can show whether the run is complete.
        code = ExitCode.HANG if last[0] == ExitCode.DONE else last[0]
        return World(number, pods, before.counted, before.fruitless, exit_name(code), int(code))
    code = min(exits, key=lambda end: cause_order(*end))[0] if exits else None
    lost_pod = len(exits) < len(ready)
    free = code is None or code in UNCOUNTED_CODES or (code == ExitCode.PEER_LOST and lost_pod)
    counted = before.counted + (not free)
    fruitless = 0 if any(each.saved for each in ready.values()) else before.fruitless + 1
    used_up = counted > max_restarts
    cause = "" if code is None or (code == ExitCode.PEER_LOST and lost_pod) else exit_name(code)
    ends = int(ExitCode.RESTARTS_USED_UP) if used_up else None
    return World(number, pods, min(counted, max_restarts), fruitless, cause, ends)


def next_number(before: World | None) -> int:
    """Return the number of the world after `before`. A world that only ended the job was no attempt."""
    return 0 if before is None else before.number + (before.ends is None)


def pause_seconds(fruitless: int) -> float:
    """Return the pause before an attempt, after this number of restarts in a row that brought nothing: 0, 0, 1, 2, 4
    and so on, up to a minute."""
    return 0.0 if fruitless < 2 else min(LONGEST_PAUSE_SECONDS, 2.0 ** (fruitless - 2))


def _world_file(storage: epath.Path, run_id: str) -> epath.Path:
    return storage / "worlds" / f"{run_id}.json"


def _read(path: epath.Path, kind: type[_Record]) -> _Record | None:
    try:
        return kind(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None
