"""A run's curves as TensorBoard reads them.

Owns the event files `tensorboard/events.out.tfevents.<start>.<part>` of a run: one for each start, so that names
sort as the starts followed each other, whatever the clocks of their hosts say. What is plotted is up to
`step_metrics`.
"""

import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import google_crc32c
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
    if first:
        yield _record(_text(_Event.FILE_VERSION, b"brain.Event:2"))
    for entry in entries:
        if entry.again:
            # Since version 2 of the files, this alone makes TensorBoard forget a step and those after it.
            yield _record(_stamp(entry) + _text(_Event.SESSION_LOG, _number(1, _SESSION_START)))
        values = [_text(1, _text(1, tag.encode()) + _float(2, value)) for tag, value in entry.values.items()]
        yield _record(_stamp(entry) + _text(_Event.SUMMARY, b"".join(values)))


class _Event(IntEnum):
    """Fields of https://github.com/tensorflow/tensorboard/blob/master/tensorboard/compat/proto/event.proto."""

    WALL_TIME = 1
    STEP = 2
    FILE_VERSION = 3
    SUMMARY = 5
    SESSION_LOG = 7


_SESSION_START = 1

# Written by hand, since the library that does it loads Google Cloud's clients too. A field is its number and wire type,
# then its value: https://protobuf.dev/programming-guides/encoding.


def _stamp(entry: Scalars) -> bytes:
    wall_time = _varint(_Event.WALL_TIME << 3 | 1) + struct.pack("<d", entry.time)
    return wall_time + _number(_Event.STEP, entry.step)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _text(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _float(field: int, value: float) -> bytes:
    return _varint(field << 3 | 5) + struct.pack("<f", value)


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(encoded) + bytes([value])


def _record(event: bytes) -> bytes:
    """Length, data, and a checksum of each (https://www.tensorflow.org/tutorials/load_data/tfrecord)."""
    length = struct.pack("<Q", len(event))
    return length + _checksum(length) + event + _checksum(event)


def _checksum(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
