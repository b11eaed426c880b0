"""Reads ahead, and retries if storage fails.

Reads have numbers, so that beginning at any step and jumping over batches need no state.
"""

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from workloads.data.token_folder import DataFault
from workloads.training.failures import DataUnreadable

FIRST_WAIT_SECONDS, MAX_WAIT_SECONDS = 0.5, 15.0
"""First and longest wait before a retry. Each wait is twice the previous one, times a random factor from 0.5 to 1, so
that hosts do not all read at once when storage is back."""

NOTES_APART_SECONDS = 30.0
"""Time between lines in the log about failing reads."""

OPEN_SECONDS = 600.0
"""Time limit of an attempt to open its data. It is long enough for an outage, and the next attempt tries again."""

_FINAL = (DataFault, FileNotFoundError)
"""Errors that a retry cannot fix."""


@dataclass
class ReadAhead[T]:
    """Results of `read` by number. After each `take`, the following numbers are read in the background."""

    read: Callable[[int], T]
    what: str
    """Name of what is read, for messages."""
    depth: int
    """Number of results to read ahead or keep."""
    period: int
    """Number of results after which the numbers begin with 0 again."""
    patience_seconds: float
    """Time limit of `take`."""
    pool: Executor
    """Threads that read, each one number at a time."""
    _reads: dict[int, Future[T]] = field(default_factory=dict[int, Future[T]])
    _faults: dict[int, Exception] = field(default_factory=dict[int, Exception])
    _stopped: threading.Event = field(default_factory=threading.Event)
    _noted: float = float("-inf")

    def close(self) -> None:
        self._stopped.set()
        for read in self._reads.values():
            read.cancel()

    def take(self, number: int) -> T:
        """Return the result for `number`, and begin to read the following ones.

        Raises:
            DataUnreadable: it cannot be read, or not within `patience_seconds`.
        """
        self.expect(number)
        try:
            return self._reads.pop(number).result(self.patience_seconds)
        except TimeoutError:
            fault = self._faults.get(number)
            last = f"the last error was {_describe(fault)}" if fault else "storage gave no answer"
            raise DataUnreadable(
                f"data: {self.what} cannot be read for {self.patience_seconds / 60:.3g} minutes, {last};"
                " check whether this host reaches the storage; the next attempt tries again"
            ) from fault
        except FileNotFoundError as error:
            raise DataUnreadable(f"data: {self.what} cannot be read: {_describe(error)}") from error

    def expect(self, number: int) -> None:
        wanted = [(number + ahead) % self.period for ahead in range(min(self.depth + 1, self.period))]
        for stale in self._reads.keys() - wanted:
            self._reads.pop(stale).cancel()
        for each in wanted:
            if each not in self._reads:
                self._reads[each] = self.pool.submit(self._read, each)

    def _read(self, number: int) -> T:
        wait = FIRST_WAIT_SECONDS
        while True:
            try:
                found = self.read(number)
            except _FINAL:
                raise
            except Exception as error:  # noqa: BLE001 - each object store has exceptions of its own
                self._faults[number] = error
                self._note(error)
                if self._stopped.wait(wait * random.uniform(0.5, 1)):
                    raise
                wait = min(2 * wait, MAX_WAIT_SECONDS)
            else:
                self._faults.pop(number, None)
                return found

    def _note(self, error: Exception) -> None:
        now = time.monotonic()
        if now - self._noted >= NOTES_APART_SECONDS:
            self._noted = now
            print(f"data: {self.what} cannot be read, trying again: {_describe(error)}", flush=True)


def read_patiently[T](read: Callable[[], T], what: str) -> T:
    """Return the result of `read`, with retries for OPEN_SECONDS.

    Raises:
        DataFault: the data cannot be used.
        DataUnreadable: the data cannot be read.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="open") as pool:
        reader = ReadAhead(lambda _: read(), what, 0, 1, OPEN_SECONDS, pool)
        try:
            return reader.take(0)
        finally:
            reader.close()


def _describe(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")
