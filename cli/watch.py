"""Follows one JobSet through the Kubernetes API and feeds what it sees into a display.

Owns the threads. What an event means is `cli.view.reduce`'s affair, how a log is followed that of `cli.logs`.
"""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from cli.logs.following import follow, leader
from cli.logs.reading import Line
from cli.observed.files import read_files
from cli.observed.objects import Object
from cli.view import reduce
from cli.view.display import Display
from cli.view.snapshot import Snapshot
from infra.kubernetes import UNREACHABLE, Json, Watch
from infra.names import JOBSET_LABEL, JOBSETS, PODS, WORKLOADS
from sandbox.access import administrator
from sandbox.site import Site

_RETRY_SECONDS = 0.2
_SILENCE_SECONDS = 60.0

_Reducer = Callable[[Snapshot, Object, float, bool], Snapshot]


@dataclass(frozen=True)
class Target:
    """The JobSet to follow."""

    site: Site
    namespace: str
    jobset: str
    folder: Path
    """Of the job's files."""


class Watcher:
    """Watches in threads of its own; connections that break are opened again."""

    def __init__(self, target: Target, display: Display) -> None:
        """Nothing is watched yet."""
        self._target = target
        self._display = display
        self._api = administrator(target.site)
        self._stopped = threading.Event()
        self._log = threading.Thread(target=self._follow_leader, daemon=True)
        job, pods = f"metadata.name={target.jobset}", f"{JOBSET_LABEL}={target.jobset}"
        self._watches = [
            self._watch(JOBSETS, {"fieldSelector": job}, self._jobset),
            self._watch(WORKLOADS, {}, reduce.workload),
            self._watch(PODS, {"labelSelector": pods}, reduce.pod),
        ]

    @contextmanager
    def watching(self) -> Generator[Self]:
        """Watch until the context ends."""
        self._log.start()
        for watch in self._watches:
            threading.Thread(target=watch.run, daemon=True).start()
        try:
            yield self
        finally:
            self._stopped.set()
            for watch in self._watches:
                watch.close()

    def drain_log(self, timeout_seconds: float) -> None:
        """Wait until the leader's log has been read to its end."""
        self._log.join(timeout_seconds)

    def _watch(self, path: str, selector: dict[str, str], reducer: _Reducer) -> Watch:
        def changed(found: Json) -> None:
            self._display.change(lambda now: reducer(now, found, time.time(), False))

        def removed(found: Json) -> None:
            self._display.change(lambda now: reducer(now, found, time.time(), True))

        return Watch(self._api, path.format(self._target.namespace), selector, changed, removed, _SILENCE_SECONDS)

    def _jobset(self, snapshot: Snapshot, found: Object, at: float, deleted: bool) -> Snapshot:
        """The JobSet was seen; if a failed host made it restart or end, read what its hosts said of it."""
        after = reduce.jobset(snapshot, found, at, deleted)
        unchanged = (after.restarts, after.outcome) == (snapshot.restarts, snapshot.outcome)
        if unchanged or not after.failed:
            return after
        return replace(after, records=read_files(str(self._target.folder)).failures)

    def _follow_leader(self) -> None:
        while not self._stopped.is_set():
            try:
                follow(self._api, self._target.namespace, self._target.jobset, leader, self._tell)
                return
            except (*UNREACHABLE, LookupError):
                # The API server cannot be asked yet; nothing has been told.
                self._stopped.wait(_RETRY_SECONDS)

    def _tell(self, line: Line) -> None:
        self._display.change(lambda now: reduce.log_line(now, line.text))
