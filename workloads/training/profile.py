"""Captures profiles of steps for XProf.

It captures the steps in the specification and those that a file `profiles/request` in the run's folder requests. The
leader looks for that file, removes it and informs the other hosts, in a thread, so that no step waits. A profile goes
to `profiles/plugins/profile/<start>-<first>-<last>/<process>-<host>.*` in the same folder, where XProf finds all hosts
of one capture. If the run stops during a capture, it is kept up to the last step that began.
"""

import math
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

import jax
from etils import epath

from workloads.spec import PROFILE_REQUEST, PROFILES, XPROF_FOLDER
from workloads.training.runtime import Processes

STEPS_ON_REQUEST = 5

POLL_SECONDS = 1.0

REQUEST_SECONDS = 5.0
"""Time between two checks for a request, each of which is a paid operation of a bucket."""

HEARD_SECONDS = 3.0
"""Time after which every host has got a request. A host that has not begins later than the others."""

type Range = tuple[int, int]
"""First and last step of a capture, counted from 1."""


class StepProfiler:
    """Captures steps on this host. It is a context manager that listens for requests."""

    def __init__(self, steps: Range | None, folder: epath.Path, start: int, processes: Processes):
        """`folder` is the run's folder, `start` the number of this attempt."""
        self._wanted = (steps,) if steps else ()
        self._folder = folder / PROFILES / XPROF_FOLDER
        self._request = folder / PROFILE_REQUEST
        self._start = start
        self._processes = processes
        self._requested = threading.Event()
        self._closed = threading.Event()
        self._listener = threading.Thread(target=self._listen, name="profile requests", daemon=True)
        self._step_began: float | None = None
        self._captured: Range = (0, 0)
        """The current or last capture."""
        self._step = 0
        """The last step that began."""
        # JAX writes to a local folder, and the run's folder may be in a bucket.
        self._local: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        self._listener.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._closed.set()
        if self._local:
            self._captured = (self._captured[0], self._step)
            self._end(self._local)

    def before(self, step: int) -> None:
        now = time.monotonic()
        if self._requested.is_set() and self._step_began is not None:
            self._requested.clear()
            self._schedule(step, now - self._step_began)
        self._step_began, self._step = now, step
        if self._local is None and (due := self._requested_range(step)):
            self._captured = due
            self._local = tempfile.TemporaryDirectory(prefix="profile-")
            jax.profiler.start_trace(self._local.name)

    def after(self, step: int) -> None:
        """Call when `step` is done. If a capture is `cut_after` it, call it before the next step begins."""
        if self._local and step == self._captured[1]:
            self._end(self._local)

    def cut_after(self, step: int) -> bool:
        """Return whether a capture ends with `step` or begins after it. The next step must then not begin before `step`
        has ended."""
        return step == self._captured[1] if self._local else self._requested_range(step + 1) is not None

    def _requested_range(self, step: int) -> Range | None:
        """Return the requested range that includes `step`, unless the range began before the last capture ended."""
        return next((each for each in self._wanted if self._captured[1] < each[0] <= step <= each[1]), None)

    def _schedule(self, step: int, step_seconds: float) -> None:
        """Publish a capture for all hosts, of the first steps that all of them can learn of in time."""
        alone = self._processes.count == 1
        first = step + (1 if alone else math.ceil(HEARD_SECONDS / max(step_seconds, 1e-3)))
        wanted = (first, first + STEPS_ON_REQUEST - 1)
        self._wanted = (*self._wanted, wanted)
        self._processes.put("profile", wanted)

    def _listen(self) -> None:
        looked = -math.inf
        while not self._closed.wait(POLL_SECONDS):
            if self._processes.leads and time.monotonic() - looked >= REQUEST_SECONDS:
                looked = time.monotonic()
                # Each object store has its own exceptions, and none may stop a run. The next check may succeed.
                with suppress(Exception):
                    if self._request.exists():
                        self._request.unlink()
                        self._requested.set()
            with suppress(jax.errors.JaxRuntimeError):
                requests: list[Range] = [(first, last) for first, last in self._processes.read_all("profile")]
                self._wanted = (*self._wanted, *(each for each in requests if each not in self._wanted))

    def _end(self, local: tempfile.TemporaryDirectory[str]) -> None:
        """Store the capture. If this fails, training continues, or ends for the cause that it already has."""
        first, last = self._captured
        folder = self._folder / f"{self._start}-{first}-{last}"
        self._local = None
        try:
            with local:
                jax.profiler.stop_trace()
                folder.mkdir(parents=True, exist_ok=True)
                for path in Path(local.name).rglob("*"):
                    for kind in (".xplane.pb", ".trace.json.gz"):
                        if path.name.endswith(kind):
                            name = f"{self._processes.index:05d}-{self._processes.host}{kind}"
                            (folder / name).write_bytes(path.read_bytes())
        except Exception as error:  # noqa: BLE001 - the profiler and each object store have exceptions of their own
            print(f"profile of steps {first} to {last} is lost: {type(error).__name__}: {error}", flush=True)
            return
        if self._processes.leads:
            print(f"profile of steps {first} to {last} saved to {folder}", flush=True)
