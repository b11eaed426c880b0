"""A run's curves on their way to the trackers that its job names, TensorBoard and Weights & Biases, by the leader.

Each tracker has a thread of its own, so that none can hold up or end training or the others. One that fails is dropped
for the rest of the attempt, and that is reported once. The library of Weights & Biases is not part of the trainer's
image.
"""

import math
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from queue import Full, Queue, ShutDown
from typing import Any, NamedTuple, Protocol

from etils import epath
from tensorboardX import RecordWriter, summary, writer

from workloads.spec import JobSpec, TrackersSpec, WandbSpec
from workloads.training.failures import InvalidSpec
from workloads.training.runs import Run
from workloads.training.runtime import Processes

CURVES = ("loss", "z_loss", "gradient_norm", "skipped", "step_seconds", "tokens_per_second", "mfu")
"""Fields of a step's line that are plotted. A curve has a gap where its field is `null`."""

CLOSE_SECONDS = 10.0
"""Longest wait for trackers at the end of a start. Spot capacity that is taken back leaves 15 seconds for all."""

WAITING_POINTS = 10_000
"""Most points that wait for a tracker which does not answer."""

_PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb"}


class Point(NamedTuple):
    """Values by curve, after one step."""

    step: int
    values: Mapping[str, float]
    again: bool
    """Whether what a tracker has of this step and later ones no longer holds."""


class Tracker(Protocol):
    """One service that shows curves. Its methods may raise anything, and are called from one thread."""

    def log(self, point: Point) -> None:
        """Show `point`."""
        ...

    def close(self, completed: bool) -> None:
        """Show what is not shown yet; `completed`: the run has reached its last step."""
        ...


def require_packages(spec: TrackersSpec) -> None:
    """Check that this image has what the job's trackers need.

    Raises:
        InvalidSpec: a package is missing. The message names all of them.
    """
    missing = [f"job.trackers.{name} needs {_PACKAGES[name]}" for name in _asked(spec) if not _has(_PACKAGES[name])]
    if missing:
        raise InvalidSpec(
            f"the image lacks packages: {', '.join(missing)}; name an image that has them, see docs/metrics.md,"
            " or remove these trackers"
        )


def trackers_of(spec: JobSpec, run: Run, processes: Processes) -> "Trackers":
    """Return the trackers of the job; all processes but the leader have none."""
    makers = {"tensorboard": partial(_tensorboard, run), "wandb": partial(_wandb, spec, run)}
    return Trackers({name: makers[name] for name in _asked(spec.trackers) if processes.leads})


def _asked(spec: TrackersSpec) -> list[str]:
    return [name for name in _PACKAGES if getattr(spec, name)]


def _has(package: str) -> bool:
    return find_spec(package) is not None


# Imported late, since most jobs need neither library.


def _tensorboard(run: Run) -> Tracker:
    from workloads.training.trackers import TensorBoard

    return TensorBoard(run.tensorboard, run.start)


def _wandb(spec: JobSpec, run: Run) -> Tracker:
    from workloads.training.trackers import WeightsAndBiases

    assert spec.trackers.wandb
    return WeightsAndBiases(spec.trackers.wandb, spec.name, run, CLOSE_SECONDS / 2)


class Trackers:
    """The trackers of one start."""

    def __init__(self, makers: Mapping[str, Callable[[], Tracker]]):
        self._makers = makers
        self._served: list[_Served] = []
        self._last_step: int | None = None

    def open(self, warn: Callable[[str], None]) -> None:
        """Begin to serve them; `warn` is told of each that fails."""
        self._served = [_Served(name, make, warn) for name, make in self._makers.items()]
        for served in self._served:
            served.start()

    def step(self, step: int, line: Mapping[str, object]) -> None:
        """Show what `step` gave, as its line says it."""
        again = self._last_step is None or step <= self._last_step
        self._last_step = step
        values = {name: float(one) for name in CURVES if isinstance(one := line[name], int | float)}
        self._show(Point(step, values, again))

    def held_out(self, step: int, loss: float) -> None:
        """Show the loss on the held-out rows after `step`."""
        if math.isfinite(loss):
            self._show(Point(step, {"held_out_loss": loss}, again=False))

    def close(self, completed: bool) -> None:
        """Wait a short time for what is not shown yet."""
        for served in self._served:
            served.end(completed)
        latest = time.monotonic() + CLOSE_SECONDS
        for served in self._served:
            served.wait_until(latest)

    def _show(self, point: Point) -> None:
        for served in self._served:
            served.show(point)


class _Served(threading.Thread):
    """One tracker, which is made and used in this thread."""

    def __init__(self, name: str, make: Callable[[], Tracker], warn: Callable[[str], None]):
        super().__init__(name=f"tracker {name}", daemon=True)
        self._setting, self._make, self._warn = f"job.trackers.{name}", make, warn
        self._points: Queue[Point] = Queue(WAITING_POINTS)
        self._completed = self._is_dropped = False

    def show(self, point: Point) -> None:
        """Have the tracker show `point`, unless it was dropped."""
        with suppress(ShutDown):
            try:
                self._points.put_nowait(point)
            except Full:
                self._drop(f"it has not taken the last {WAITING_POINTS} points")

    def end(self, completed: bool) -> None:
        """Have the tracker close once it has all points."""
        self._completed = completed
        self._points.shutdown()

    def wait_until(self, latest: float) -> None:
        """Wait for its end, but not beyond `latest` of `time.monotonic()`."""
        self.join(max(0.0, latest - time.monotonic()))
        if self.is_alive():
            self._drop("it has not taken the last points in time")

    def run(self) -> None:
        """Serve the tracker to its end."""
        try:
            tracker = self._make()
            with suppress(ShutDown):
                while True:
                    tracker.log(self._points.get())
            tracker.close(self._completed)
        except Exception as error:  # noqa: BLE001 - each library has exceptions of its own
            self._drop(f"{type(error).__name__}: {error}".splitlines()[0])

    def _drop(self, why: str) -> None:
        self._points.shutdown(immediate=True)
        if not self._is_dropped:
            self._is_dropped = True
            self._warn(f"{self._setting} fails and is left out until the next start: {why}")


FLUSH_SECONDS = 30.0
"""Time between two writes. An object store gets the whole part each time."""

POINTS_PER_PART = 5000
"""About 1.5 MB, which is written within a second."""


class TensorBoard:
    """The curves of one start.

    Written by the library's RecordWriter and not by its SummaryWriter: the thread of that one ends when storage fails,
    and whoever writes or exits afterwards waits for it without end.
    """

    def __init__(self, folder: epath.Path, start: int):
        self._folder, self._start = folder, start
        folder.mkdir(parents=True, exist_ok=True)
        self._begin_part(0)

    def log(self, point: Point) -> None:
        """Add `point` to the file."""
        if self._points == POINTS_PER_PART:
            self._file.close()
            self._begin_part(self._part + 1)
        if point.again:
            # Since version 2 of the files, this alone makes TensorBoard forget a step and those after it.
            self._write(step=point.step, session_log=writer.SessionLog(status=writer.SessionLog.START))
        values = [summary.Summary.Value(tag=tag, simple_value=value) for tag, value in point.values.items()]
        self._write(step=point.step, summary=summary.Summary(value=values))
        self._points += 1
        if time.monotonic() >= self._next_flush:
            self._file.flush()
            self._next_flush = time.monotonic() + FLUSH_SECONDS

    def close(self, completed: bool) -> None:
        """Write the rest."""
        del completed
        self._file.close()

    def _begin_part(self, number: int) -> None:
        self._part, self._points = number, 0
        self._next_flush = time.monotonic()
        self._file = RecordWriter(str(self._folder / f"events.out.tfevents.{self._start:010d}.{number:05d}"))
        self._write(file_version="brain.Event:2")

    def _write(self, **content: Any) -> None:
        self._file.write(writer.Event(wall_time=time.time(), **content).SerializeToString())


LOGIN_SECONDS = 30.0


class WeightsAndBiases:
    """One run there for all starts of a run here: both have the same id.

    https://docs.wandb.ai/ref/python/sdk/functions/init/
    """

    def __init__(self, spec: WandbSpec, job: str, run: Run, close_seconds: float):
        wandb: Any = import_module("wandb")
        self._run = wandb.init(
            project=spec.project,
            entity=spec.entity,
            id=run.id,
            name=job,
            resume="allow",
            config=run.manifest,
            dir=tempfile.mkdtemp(prefix="wandb-"),
            # The end of the process waits for a login that is under way, and without limit for uploads.
            settings={"console": "off", "init_timeout": LOGIN_SECONDS, "finish_timeout": close_seconds},
        )
        # Its own count of steps drops those that a restart or rollback does again.
        self._run.define_metric("*", step_metric="step")

    def log(self, point: Point) -> None:
        """Send `point`."""
        self._run.log({"step": point.step, **point.values})

    def close(self, completed: bool) -> None:
        """Send the rest, for a limited time."""
        self._run.finish(exit_code=0 if completed else 1)
