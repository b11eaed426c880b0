"""A run's curves on their way to the trackers that its job names, written by the leader.

A thread of its own serves them: none of them can hold up or end training. One that fails is dropped for the rest of
the start, and that is said once.
"""

import math
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from queue import Full, Queue, ShutDown
from typing import NamedTuple, Protocol

from workloads.spec import JobSpec, TrackersSpec
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
    from workloads.training.tensorboard import TensorBoard

    return TensorBoard(run.tensorboard, run.start)


def _wandb(spec: JobSpec, run: Run) -> Tracker:
    from workloads.training.weights_and_biases import WeightsAndBiases

    assert spec.trackers.wandb
    return WeightsAndBiases(spec.trackers.wandb, spec.name, run, CLOSE_SECONDS / 2)


class Trackers:
    """The trackers of one start, each made by its maker in the thread that serves them."""

    def __init__(self, makers: Mapping[str, Callable[[], Tracker]]):
        self._makers = makers
        self._running: dict[str, Tracker] = {}
        self._points: Queue[Point] = Queue(WAITING_POINTS)
        self._completed = False
        self._is_behind = False
        self._last_step: int | None = None

    def open(self, warn: Callable[[str], None]) -> None:
        """Begin to serve them; `warn` is told of each that fails."""
        self._warn = warn
        self._thread = threading.Thread(target=self._serve, name="trackers", daemon=True)
        if self._makers:
            self._thread.start()

    def step(self, step: int, line: Mapping[str, object]) -> None:
        """Show what `step` gave, as its line says it."""
        again = self._last_step is None or step <= self._last_step
        self._last_step = step
        values = {name: line[name] for name in CURVES}
        self._put(
            Point(step, {name: float(one) for name, one in values.items() if isinstance(one, int | float)}, again)
        )

    def held_out(self, step: int, loss: float) -> None:
        """Show the loss on the held-out rows after `step`."""
        if math.isfinite(loss):
            self._put(Point(step, {"held_out_loss": loss}, again=False))

    def close(self, completed: bool) -> None:
        """Wait a short time for what is not shown yet."""
        self._completed = completed
        self._points.shutdown()
        if self._makers:
            self._thread.join(CLOSE_SECONDS)
            if self._thread.is_alive():
                self._warn(f"job.trackers: {', '.join(self._running)} may lack the last points: no answer in time")

    def _put(self, point: Point) -> None:
        try:
            if self._makers:
                self._points.put_nowait(point)
        except Full:
            if not self._is_behind:
                self._warn(f"job.trackers: {', '.join(self._running)} do not keep up and will lack points")
            self._is_behind = True

    def _serve(self) -> None:
        for name, make in self._makers.items():
            with self._dropped_on_failure(name):
                self._running[name] = make()
        with suppress(ShutDown):
            while True:
                point = self._points.get()
                for name, tracker in [*self._running.items()]:
                    with self._dropped_on_failure(name):
                        tracker.log(point)
        for name, tracker in [*self._running.items()]:
            with self._dropped_on_failure(name):
                tracker.close(self._completed)

    @contextmanager
    def _dropped_on_failure(self, name: str) -> Generator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - each library has exceptions of its own
            self._running.pop(name, None)
            self._warn(f"job.trackers.{name} fails and is left out until the next start: {_sentence(error)}")


def _sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
