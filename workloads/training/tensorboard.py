"""A run's curves as TensorBoard reads them.

Owns the event files `tensorboard/events.out.tfevents.<start>.<part>` of a run: one for each start, so that names
sort as the starts followed each other, whatever the clocks of their hosts say. What is plotted is up to
`step_metrics`.
"""

import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from etils import epath

from workloads.training.metrics import GrowingFile, Parts, is_object


@dataclass(frozen=True)
class Scalars:
    """Values after one step, by tag."""

    time: float
    step: int
    values: Mapping[str, float]
    again: bool
    """Whether what TensorBoard has of this step and later ones no longer holds."""


class Curves(Parts["EventFile"]):
    """The curves of one start."""

    def __init__(self, folder: epath.Path, start: int):
        super().__init__(lambda part: EventFile(folder / f"events.out.tfevents.{start:010d}.{part:05d}"))
        self._step: int | None = None

    def step(self, step: int, values: Mapping[str, float]) -> None:
        """Plot what `step` gave; where training went back to do it again, the curves go on from there."""
        again = self._step is None or step <= self._step
        self.last().append(Scalars(time.time(), step, values, again))
        self._step = step

    def beside(self, step: int, values: Mapping[str, float]) -> None:
        """Plot what was found after `step`."""
        self.last().append(Scalars(time.time(), step, values, again=False))


class EventFile(GrowingFile[Scalars]):
    """TFRecords: appended to in a folder, since a reader keeps the file open; in an object store written anew."""

    def __init__(self, path: epath.Path):
        super().__init__(path)
        self._encoded = bytearray()

    def store(self, entries: Sequence[Scalars], new: int) -> None:
        """Add the new entries to the file."""
        added = b"".join(_records(entries[-new:], first=not self._encoded))
        if is_object(self.path):
            self.path.write_bytes(bytes(self._encoded) + added)
        else:
            with self.path.open("ab") as file:
                file.write(added)
        self._encoded += added


def _records(entries: Iterable[Scalars], first: bool) -> Iterator[bytes]:
    # Importing these takes a fifth of a second, so it is left to the writing thread. They have no types.
    from tensorboardX.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]
    from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

    if first:
        yield _record(Event(file_version="brain.Event:2"))
    for entry in entries:
        if entry.again:
            # Since version 2 of the files, this alone makes TensorBoard forget a step and those after it.
            purge = SessionLog(status=SessionLog.START)
            yield _record(Event(wall_time=entry.time, step=entry.step, session_log=purge))
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in entry.values.items()]
        yield _record(Event(wall_time=entry.time, step=entry.step, summary=Summary(value=values)))


def _record(event: Any) -> bytes:
    """Length, data, and a checksum of each (https://www.tensorflow.org/tutorials/load_data/tfrecord)."""
    from tensorboardX.record_writer import masked_crc32c

    data = event.SerializeToString()
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data))
