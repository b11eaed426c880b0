"""Ends a process after a failure: it reports to the log, to the other hosts and to storage, then exits.

The failure record is `failures/<run id>/<host>-<restart>-<second>.json` below the storage path. It is next to the runs
because a host may fail before a run is open. Its name has the second in which the process began because a job that was
evicted and continues does not count as a restart in the JobSet.

A host that failed publishes its exit code, and all others exit with the same one, so that every pod shows the cause. A
host that dies suddenly cannot do so. JAX then aborts its peers (exit code 134, PEER_LOST). The callback that jaxlib
offers instead cannot be used in Python, because its argument, an absl::Status, has no Python type, and recoverable
tasks would hang in their collective.
"""

import ctypes
import json
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any, NoReturn, Protocol, Self

from etils import epath

from multislice_run.attempt_facts import AttemptFacts
from multislice_run.exit_codes import ExitCode
from multislice_run.failures import Stopped, exit_code, is_peer_lost
from multislice_run.records import numbered
from multislice_run.records.lines import FailureRecord
from multislice_run.supervised import is_supervised

RECORD_TIMEOUT_SECONDS = 10
"""Time that the exit waits for storage, which may be what failed."""

LINGER_SECONDS = 3
"""Time that a host waits before it exits because another one is gone. The Job controller reports one of the pods that
it sees failed. This delay makes it the lost one, which kubelet reports within a second or two. SIGTERM ends it, because
the pod is deleted after that report. With a supervisor the pod does not fail, so the process ends at once."""

_GONE = "another host is gone; see its own failure for the cause"


class Others(Protocol):
    """The other processes of the job, which end too after a failure."""

    def publish_failure(self, failure: Mapping[str, object], /) -> None:
        """Tell them the failure of this process. Return when they have heard it, unless this process lingers anyway."""


class Failure(FailureRecord):
    """Why a host ends. It is written to storage and published to the other hosts."""

    @classmethod
    def of(cls, error: BaseException, host: str) -> Self:
        """Return the failure of `host` for `error`."""
        known = isinstance(error, Stopped)
        cause = str(error) if known else f"{type(error).__name__}: {error}".strip()
        if is_peer_lost(error):
            cause = f"{_GONE}: {cause}"
        details = [] if known else "".join(traceback.format_exception(error)).splitlines()
        return cls(cause, host, exit_code(error), time.time(), details)

    @classmethod
    def of_lost_host(cls, lost: str, host: str) -> Self:
        """Return the failure of `host` because it has lost its connection to the host `lost`."""
        return cls(f"{_GONE}: the connection to {lost} has ended", host, ExitCode.PEER_LOST, time.time())

    @classmethod
    def from_other_host(cls, other: Mapping[str, Any], stacks: str, host: str) -> Self:
        """Return the failure of `host` because another one published `other`."""
        # After a hang, the cause is the host whose stacks differ from the others', so every host reports its stacks.
        code = int(other["code"])
        details = stacks.splitlines() if code == ExitCode.HANG else []
        cause = f"host {other['host']} failed: {other['cause']}"
        return cls(cause, host, code, time.time(), details, elsewhere=True)


def silence_storage() -> None:
    """Keep gcsfs from warning at every call that it found no default credentials. Real failures are raised anyway."""
    logging.getLogger("gcsfs").setLevel(logging.ERROR)


class Ending:
    """Ends a process that failed. Only the first thread that calls it counts."""

    def __init__(self, storage: epath.Path, start: AttemptFacts, host: str):
        silence_storage()
        name = f"{host}-{start.restart_attempt}-{int(start.began)}.json"
        self._record = storage / "failures" / start.run_id / name
        self._taken = threading.Lock()

    def fail(self, failure: Failure, others: Others | None = None) -> NoReturn:
        """Report the failure everywhere and exit. Later failures of other threads are ignored."""
        if not self._taken.acquire(blocking=False):
            threading.Event().wait()
        print("\n".join([f"stopped: {failure.cause}", *failure.details]), file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        writer = threading.Thread(target=self._write, args=(failure,), daemon=True)
        writer.start()
        lingers = failure.code == ExitCode.PEER_LOST and not is_supervised()
        lingers_until = time.monotonic() + LINGER_SECONDS if lingers else 0.0
        if others:
            others.publish_failure({"cause": failure.cause, "host": failure.host, "code": failure.code})
        writer.join(RECORD_TIMEOUT_SECONDS)
        _linger(lingers_until)
        # A normal exit would wait at JAX's shutdown barrier for hosts that wait in a collective for this one.
        os._exit(failure.code)

    def note(self, failure: Failure | None) -> None:
        """Write a record of a failure that may soon end this process without time to write. `None` removes it."""
        with suppress(Exception):
            if failure:
                self._write(failure)
            else:
                self._record.unlink(missing_ok=True)

    def _write(self, failure: Failure) -> None:
        # A host without any record counts as the lost one.
        if failure.elsewhere and not failure.details and failure.code != ExitCode.PEER_LOST:
            return
        # The log already has it, and nothing may keep the process from ending.
        with suppress(Exception):
            self._record.parent.mkdir(parents=True, exist_ok=True)
            self._record.write_text(json.dumps(numbered(asdict(failure)), indent=2) + "\n")


def _linger(until: float) -> None:
    """Wait until this time by `time.monotonic()`, or end by SIGTERM with the exit code of a host that lost another."""
    if (seconds := until - time.monotonic()) > 0:
        # Handlers of Python run in the main thread, which may wait in a collective, and the one of JAX only notes that
        # the signal came.
        libc = ctypes.CDLL(None)
        libc.signal(signal.SIGTERM, libc.abort)
        time.sleep(seconds)
