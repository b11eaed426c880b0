"""How a process ends for a failure: it tells its log, the other hosts and storage, then exits.

Owns the failure record `failures/<run id>/<host>-<restart>-<second>.json` below the storage path, and the exit. It
lies beside the runs because a host may fail before any run is open, and is named by the second in which the
process began because a job that was evicted and goes on is no restart to the JobSet. Who finds a failure (the
trainer, the watchdog, another host) is elsewhere.

A host that failed publishes its exit code, and all others exit with the same one: whichever pod the
cluster looks at first, it sees the cause. A host that dies without a word cannot do so. JAX then aborts
its peers (exit code 134, PEER_LOST): the callback that jaxlib offers instead is of no use in Python,
since its argument, an absl::Status, has no Python type, and recoverable tasks would hang in their collective.
"""

import json
import os
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import NoReturn, Self

from etils import epath

from workloads.spec import ExitCode
from workloads.training.failures import TrainingStopped, exit_code, is_peer_lost
from workloads.training.runtime import Processes
from workloads.training.start import Start

RECORD_TIMEOUT_SECONDS = 10
"""Storage may be what failed: the exit does not wait longer for it."""

LINGER_SECONDS = 3
"""A host that ends because another one is gone stays as long. The Job controller names one of the pods that it sees
failed when it looks; until then that shall be the one that is gone, of which kubelet tells within a second or two."""


@dataclass(frozen=True)
class Failure:
    """Why a host ends; the record in storage and the word to the other hosts."""

    cause: str
    details: list[str]
    """Traceback or stacks, line by line."""
    host: str
    code: int
    time: float
    elsewhere: bool = False
    """Whether it is another host's failure."""

    @classmethod
    def of(cls, error: BaseException, host: str) -> Self:
        """The failure that `error` means on `host`."""
        known = isinstance(error, TrainingStopped)
        cause = str(error) if known else f"{type(error).__name__}: {error}".strip()
        if is_peer_lost(error):
            cause = f"another host is gone, whose own end says why: {cause}"
        details = [] if known else "".join(traceback.format_exception(error)).splitlines()
        return cls(cause, details, host, exit_code(error), time.time())

    @classmethod
    def hang(cls, cause: str, stacks: str, host: str) -> Self:
        """A host that does not go on."""
        return cls(cause, stacks.splitlines(), host, ExitCode.HANG, time.time())

    @classmethod
    def lost(cls, cause: str, host: str) -> Self:
        """The end that `host` has before it when another one is gone."""
        return cls(cause, [], host, ExitCode.PEER_LOST, time.time())

    def text(self) -> str:
        """For the log."""
        return "\n".join([f"stopped: {self.cause}", *self.details])

    def word(self) -> str:
        """For the other hosts."""
        return json.dumps({"cause": self.cause, "host": self.host, "code": self.code})

    @classmethod
    def heard(cls, word: str, stacks: str, host: str) -> Self:
        """The end of `host` because another one said `word`."""
        other = json.loads(word)
        # Of a hang nobody knows yet which host it is: the one whose stacks differ from the others'.
        details = stacks.splitlines() if other["code"] == ExitCode.HANG else []
        cause = f"host {other['host']} failed: {other['cause']}"
        return cls(cause, details, host, other["code"], time.time(), elsewhere=True)


class Ending:
    """The only way out of a process that failed; the first thread that takes it wins."""

    def __init__(self, storage: epath.Path, start: Start, host: str):
        name = f"{host}-{start.restart_attempt}-{int(start.began)}.json"
        self._record = storage / "failures" / start.run_id / name
        self._taken = threading.Lock()

    def fail(self, failure: Failure, others: Processes) -> NoReturn:
        """Say why everywhere and exit; what another thread says after this one is not heard."""
        if not self._taken.acquire(blocking=False):
            threading.Event().wait()
        print(failure.text(), file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        writer = threading.Thread(target=self._write, args=(failure,), daemon=True)
        writer.start()
        others.tell_failure(failure.word())
        if failure.code == ExitCode.PEER_LOST:
            time.sleep(LINGER_SECONDS)
        writer.join(RECORD_TIMEOUT_SECONDS)
        # A normal exit would wait at JAX's shutdown barrier for hosts that wait in a collective for this one.
        os._exit(failure.code)

    def note(self, failure: Failure | None) -> None:
        """Keep a record of what this process may soon end for, since it will have no time then; None: it will not."""
        with suppress(Exception):
            if failure:
                self._write(failure)
            else:
                self._record.unlink(missing_ok=True)

    def _write(self, failure: Failure) -> None:
        if failure.elsewhere and not failure.details:
            return
        # The log has it already, and nothing may keep the process from ending.
        with suppress(Exception):
            self._record.parent.mkdir(parents=True, exist_ok=True)
            self._record.write_text(json.dumps(asdict(failure), indent=2) + "\n")
