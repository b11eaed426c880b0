"""Ensures that only one submission at a time writes below a storage path.

The lease `writer.json` there records which submission writes, in which process, when it last renewed the lease, and
which submissions wrote before. The leader takes it before training and renews it during training.

A submission may continue later, for example when Kueue admits it again. So who may take the lease depends on its state:

    its holder ended, and nothing restarts at     anybody, at once. This is after DONE, FATAL_CODES and PREEMPTED,
    once (`left`)                                 because the replacement of a deleted job must not wait
    its holder crashed, hung or the like          the same submission at once; others after the lease has not changed
                                                  for EXPIRES_SECONDS by their own clock
    it is renewed                                 a later attempt of the same submission, at once

A process that may not take it ends. A submission that never wrote there fails permanently (InvalidSpec). One that wrote
before, and was paused while another took over, fails in a way that counts (PathTaken), because the other one may be
gone when it restarts.

File systems and object stores through epath have no compare-and-set. Cloud Storage has preconditions, but gcsfs
supports none for replacing an object. So the lease is written and read back. Two processes that find it free at the
same moment may both continue until one of them renews it, finds the other's lease and ends, at most
RENEWED_EVERY_SECONDS later. Until then, they may have begun two runs, or overwritten each other's checkpoints of a
step. A process that was cut off so long that another took over ends in the same way.
"""

import json
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Self

from etils import epath

from multislice_run.records.ledger import write_whole
from workloads.spec import FATAL_CODES, ExitCode
from workloads.training.failures import InvalidSpec, PathTaken, TrainingStopped
from workloads.training.runtime import Processes

RENEWED_EVERY_SECONDS = 10.0

EXPIRES_SECONDS = 60.0
"""Time without a change after which a lease is free, because its holder was killed. Renewing may fail a few times
before."""

LOOKS_EVERY_SECONDS = 2.0

RELEASED_WITHIN_SECONDS = 10.0
"""Time that an exit waits for storage, which may be what failed."""

MINUTES = 5.0
"""Time limit of taking the lease in minutes, after which a host counts as hung. It allows for two expiries and slow
storage."""

_LETS_GO = (*FATAL_CODES, ExitCode.PREEMPTED)


@dataclass(frozen=True)
class Lease:
    """The current or last writer."""

    run_id: str
    """Id of the submission."""
    start: int
    """Number of restarts before this attempt."""
    holder: str
    """Id of the process. After an eviction, the next process has the same run id and start."""
    earlier: list[str]
    """Submissions that wrote before and may continue."""
    left: bool
    """Whether its holder released it."""
    time: float
    """Unix time of the last renewal, only for people, because clocks of machines differ."""


_UNREADABLE = Lease("(its lease cannot be read)", 0, "", [], left=False, time=0.0)


class Writer:
    """The right of one attempt to write below `storage`. All processes of the job enter this context manager."""

    def __init__(
        self,
        storage: epath.Path,
        run_id: str,
        start: int,
        processes: Processes,
        lost: Callable[[TrainingStopped], None],
    ):
        """`lost` is called from another thread when another process has taken over."""
        self._path = storage / "writer.json"
        self._own = Lease(run_id, start, secrets.token_hex(8), [], left=False, time=0.0)
        self._processes = processes
        self._lost = lost
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="writer", daemon=True)

    def __enter__(self) -> Self:
        """Wait until the path is free.

        Raises:
            InvalidSpec: another submission is writing there.
            PathTaken: another submission took over while this one was paused, or a later attempt of this one did.
        """
        self._processes.deadline.expect(f"the right to write to {self._path.parent}", MINUTES)

        def take() -> tuple[bool, str]:
            fault = self._take()
            return isinstance(fault, PathTaken), str(fault or "")

        taken, message = self._processes.share("writer", take)
        if message:
            raise PathTaken(message) if taken else InvalidSpec(message)
        if self._processes.leads:
            self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._done.set()
        # After another failure, a restart takes it at once, and the other hosts must be informed without delay.
        lets_go = error is None or (isinstance(error, TrainingStopped) and error.code in _LETS_GO)
        if self._processes.leads and lets_go:
            releasing = threading.Thread(target=self._release, name="writer's release", daemon=True)
            releasing.start()
            releasing.join(RELEASED_WITHIN_SECONDS)

    def _take(self) -> TrainingStopped | None:
        """Wait for the lease and take it. If another holder renews it beyond the time to expire, return the failure."""
        began = changed = time.monotonic()
        found, seen = self._read(), ""
        while found and not self._may_take(found):
            now, said = time.monotonic(), json.dumps(asdict(found))
            if not seen:
                print(f"waiting {EXPIRES_SECONDS:.0f} s or more: run {found.run_id} may write to {self._path.parent}")
            elif said != seen and now - began > EXPIRES_SECONDS:
                return self._refusal(found)
            elif said == seen and now - changed > EXPIRES_SECONDS:
                break
            if said != seen:
                seen, changed = said, now
            time.sleep(LOOKS_EVERY_SECONDS)
            found = self._read()
        if found and found != _UNREADABLE:
            earlier = {*found.earlier, found.run_id} - {self._own.run_id}
            self._own = replace(self._own, earlier=sorted(earlier))
        self._write(self._own)
        other = self._read()
        return self._refusal(other) if other and self._lost_to(other) else None

    def _may_take(self, found: Lease) -> bool:
        return found.left or (found.run_id == self._own.run_id and found.start <= self._own.start)

    def _lost_to(self, found: Lease) -> bool:
        """Return whether another process took over. A late write of an earlier attempt does not count."""
        earlier_start = found.run_id == self._own.run_id and found.start < self._own.start
        return found != _UNREADABLE and found.holder != self._own.holder and not earlier_start

    def _refusal(self, other: Lease) -> TrainingStopped:
        path, own = self._path.parent, self._own.run_id
        if other.run_id == own:
            return PathTaken(
                f"another attempt of run {own} writes to storage.path {path} and continues; this one was cut off"
            )
        heard = time.strftime("%H:%M:%S", time.gmtime(other.time))
        text = f"storage.path {path} is written by run {other.run_id}, last heard of at {heard} UTC, and run {own}"
        if own in other.earlier:
            return PathTaken(f"{text}, which wrote there before, was paused; delete one of the two jobs")
        return InvalidSpec(f"{text} would spoil it; wait until that job has ended, delete it, or set another path")

    def _renew(self) -> None:
        while not self._done.wait(RENEWED_EVERY_SECONDS):
            try:
                found = self._read()
                if found and self._lost_to(found):
                    self._lost(self._refusal(found))
                    return
                self._write(self._own)
            except Exception as error:  # noqa: BLE001 - whatever storage raises, it may be back the next time
                print(f"{self._path} cannot be renewed, trying again: {error}")

    def _read(self) -> Lease | None:
        try:
            return Lease(**json.loads(self._path.read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):
            return _UNREADABLE

    def _write(self, lease: Lease) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._path, json.dumps(asdict(replace(lease, time=time.time()))))

    def _release(self) -> None:
        self._thread.join()
        found = self._read()
        if not found or not self._lost_to(found):
            self._write(replace(self._own, left=True))
