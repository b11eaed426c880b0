"""Writes a run's curves for TensorBoard to `tensorboard/events.out.tfevents.<start>.<part>` of the run.

The names sort in the order of the attempts, whatever the clocks of their hosts.
"""

import time
from typing import Any

from etils import epath
from tensorboardX import RecordWriter, summary, writer

from workloads.training.trackers import Point

FLUSH_SECONDS = 30.0
"""Time between two writes. An object store gets the whole part each time."""

POINTS_PER_PART = 5000
"""Number of points in a part. It is about 1.5 MB, which is written within a second."""


class TensorBoard:
    """The curves of one attempt.

    They are written with the library's RecordWriter and not with its SummaryWriter, whose thread ends if storage fails.
    Later writes and the exit would then wait for it forever.
    """

    def __init__(self, folder: epath.Path, start: int):
        self._folder, self._start = folder, start
        folder.mkdir(parents=True, exist_ok=True)
        self._begin_part(0)

    def log(self, point: Point) -> None:
        if self._points == POINTS_PER_PART:
            self._file.close()
            self._begin_part(self._part + 1)
        if point.again:
            # Since version 2 of the files, only this makes TensorBoard discard a step and those after it.
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
