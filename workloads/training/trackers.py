"""Sends a run's curves to the trackers of its job. Only the leader does this.

Each tracker has its own thread, so that it cannot delay or end training or other trackers. A tracker that fails is
dropped for the rest of the attempt with one warning.

TensorBoard's files are `tensorboard/events.out.tfevents.<start>.<part>` of the run. Their names sort in the order of
the attempts, whatever the clocks of their hosts.
"""

import math
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from queue import Full, Queue, ShutDown
from typing import Any, NamedTuple, Protocol

from etils import epath

from multislice_run.records.lines import StepLine
from workloads.spec import JobSpec, TrackersSpec, WandbSpec
from workloads.training.failures import InvalidSpec, first_line
from workloads.training.runs import Run
from workloads.training.runtime import Processes

CURVES = ("loss", "z_loss", "gradient_norm", "skipped", "step_seconds", "tokens_per_second", "mfu")
"""Fields of a step's line that are plotted. A curve has a gap where its value is unknown or not finite."""

CLOSE_SECONDS = 10.0
"""Time limit for trackers at the end of an attempt. Spot capacity leaves 15 seconds in all when it is taken back."""

LOGIN_SECONDS = 30.0

WAITING_POINTS = 10_000
"""Largest number of points that wait for a tracker that does not answer."""

FLUSH_SECONDS = 30.0
"""Time between two writes. An object store gets the whole part each time."""

POINTS_PER_PART = 5000
"""Number of points in a part. It is about 1.5 MB, which is written within a second."""

_PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb"}


class Point(NamedTuple):
    """Values of the curves after one step."""

    step: int
    values: Mapping[str, float]
    again: bool
    """Whether the step repeats, so that earlier points of this step and later ones are no longer valid."""


class Tracker(Protocol):
    """A service that shows curves. Its methods may raise any exception, and are called from one thread."""

    def log(self, point: Point) -> None:
        """Show `point`."""

    def close(self, completed: bool) -> None:
        """Show all remaining points. `completed` means that the run has reached its last step."""


class TensorBoard:
    """The curves of one attempt.

    They are written with the library's RecordWriter and not with its SummaryWriter, whose thread ends if storage fails.
    Later writes and the exit would then wait for it forever.
    """

    def __init__(self, folder: epath.Path, start: int):
        # Imported late, because most jobs do not need it.
        self._library: Any = import_module("tensorboardX")
        self._folder, self._start = folder, start
        folder.mkdir(parents=True, exist_ok=True)
        self._begin_part(0)

    def log(self, point: Point) -> None:
        if self._points == POINTS_PER_PART:
            self._file.close()
            self._begin_part(self._part + 1)
        if point.again:
            # Since version 2 of the files, only this makes TensorBoard discard a step and those after it.
            log = self._library.writer.SessionLog
            self._write(step=point.step, session_log=log(status=log.START))
        summary = self._library.summary.Summary
        values = [summary.Value(tag=tag, simple_value=value) for tag, value in point.values.items()]
        self._write(step=point.step, summary=summary(value=values))
        self._points += 1
        if time.monotonic() >= self._next_flush:
            self._file.flush()
            self._next_flush = time.monotonic() + FLUSH_SECONDS

    def close(self, completed: bool) -> None:
        del completed
        self._file.close()

    def _begin_part(self, number: int) -> None:
        self._part, self._points = number, 0
        self._next_flush = time.monotonic()
        path = self._folder / f"events.out.tfevents.{self._start:010d}.{number:05d}"
        self._file = self._library.RecordWriter(str(path))
        self._write(file_version="brain.Event:2")

    def _write(self, **content: Any) -> None:
        event = self._library.writer.Event(wall_time=time.time(), **content)
        self._file.write(event.SerializeToString())


class WeightsAndBiases:
    """The run in Weights & Biases, whose library is not in the trainer's image. It has the same id as the run here and
    continues in all its attempts.

    https://docs.wandb.ai/ref/python/sdk/functions/init/
    """

    def __init__(self, spec: WandbSpec, job: str, run: Run):
        wandb: Any = import_module("wandb")
        self._run = wandb.init(
            project=spec.project,
            entity=spec.entity,
            id=run.id,
            name=job,
            resume="allow",
            config=run.manifest,
            dir=tempfile.mkdtemp(prefix="wandb-"),
            # The exit of the process waits for a login in progress, and without a limit for uploads.
            settings={"console": "off", "init_timeout": LOGIN_SECONDS, "finish_timeout": CLOSE_SECONDS / 2},
        )
        # The library's own step counter drops steps that a restart or rollback repeats.
        self._run.define_metric("*", step_metric="step")

    def log(self, point: Point) -> None:
        self._run.log({"step": point.step, **point.values})

    def close(self, completed: bool) -> None:
        """Send the rest, for a limited time."""
        self._run.finish(exit_code=0 if completed else 1)


def require_packages(spec: TrackersSpec) -> None:
    """Check that this image has the packages of the job's trackers.

    Raises:
        InvalidSpec: a package is missing. The message names all of them.
    """
    missing = [
        f"job.trackers.{name} needs {_PACKAGES[name]}"
        for name in _tracker_names(spec)
        if not find_spec(_PACKAGES[name])
    ]
    if missing:
        raise InvalidSpec(
            f"the image lacks packages: {', '.join(missing)}; use an image that has them (docs/how-to/metrics.md) or"
            " remove these trackers"
        )


def trackers_of(spec: JobSpec, run: Run, processes: Processes) -> "Trackers":
    """Return the trackers of the job on the leader, and none on other processes."""

    def tensorboard() -> Tracker:
        return TensorBoard(run.tensorboard, run.start)

    def wandb() -> Tracker:
        assert spec.trackers.wandb
        return WeightsAndBiases(spec.trackers.wandb, spec.name, run)

    makers = {"tensorboard": tensorboard, "wandb": wandb}
    return Trackers({name: makers[name] for name in _tracker_names(spec.trackers) if processes.leads})


def _tracker_names(spec: TrackersSpec) -> list[str]:
    return [name for name in _PACKAGES if getattr(spec, name)]


class Trackers:
    """The trackers of one attempt."""

    def __init__(self, makers: Mapping[str, Callable[[], Tracker]]):
        self._makers = makers
        self._served: list[_Served] = []
        self._last_step: int | None = None

    def open(self, warn: Callable[[str], None]) -> None:
        """Begin to serve them. `warn` is called for each that fails."""
        self._served = [_Served(name, make, warn) for name, make in self._makers.items()]
        for served in self._served:
            served.start()

    def step(self, line: StepLine) -> None:
        again = self._last_step is None or line.step <= self._last_step
        self._last_step = line.step
        facts = line.facts()
        values = {name: float(one) for name in CURVES if (one := facts.get(name)) is not None}
        self._show(Point(line.step, values, again))

    def held_out(self, step: int, loss: float) -> None:
        """Show the loss on the held-out rows after `step`."""
        if math.isfinite(loss):
            self._show(Point(step, {"held_out_loss": loss}, again=False))

    def close(self, completed: bool) -> None:
        """Wait a short time for points that are not shown yet."""
        for served in self._served:
            served.end(completed)
        latest = time.monotonic() + CLOSE_SECONDS
        for served in self._served:
            served.wait_until(latest)

    def _show(self, point: Point) -> None:
        for served in self._served:
            served.show(point)


class _Served(threading.Thread):
    """A thread that creates and uses one tracker."""

    def __init__(self, name: str, make: Callable[[], Tracker], warn: Callable[[str], None]):
        super().__init__(name=f"tracker {name}", daemon=True)
        self._setting, self._make, self._warn = f"job.trackers.{name}", make, warn
        self._points: Queue[Point] = Queue(WAITING_POINTS)
        self._completed = self._is_dropped = False

    def show(self, point: Point) -> None:
        """Pass `point` to the tracker, unless it was dropped."""
        with suppress(ShutDown):
            try:
                self._points.put_nowait(point)
            except Full:
                self._drop(f"it has not taken the last {WAITING_POINTS} points")

    def end(self, completed: bool) -> None:
        self._completed = completed
        self._points.shutdown()

    def wait_until(self, latest: float) -> None:
        """Wait for its end, until `latest` by `time.monotonic()`."""
        self.join(max(0.0, latest - time.monotonic()))
        if self.is_alive():
            self._drop("it has not taken the last points in time")

    def run(self) -> None:
        try:
            tracker = self._make()
            with suppress(ShutDown):
                while True:
                    tracker.log(self._points.get())
            tracker.close(self._completed)
        except Exception as error:  # noqa: BLE001 - each library has exceptions of its own
            self._drop(first_line(error))

    def _drop(self, why: str) -> None:
        self._points.shutdown(immediate=True)
        if not self._is_dropped:
            self._is_dropped = True
            self._warn(f"{self._setting} fails and is left out until the next attempt: {why}")
