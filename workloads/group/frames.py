"""Frames that hosts of different slices send to each other, and what can go wrong with them."""

import struct
import zlib
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple, Self

BLOCK_BYTES = 1 << 20
"""Largest content of a frame: small enough for the second-level cache of a processor, large enough that Python's share
of the time is small."""


class Aborted(Exception):
    """Raised when a task ended early because a peer is gone or the caller stopped it. A later view can repeat it."""

    def __init__(self, message: str, lost: frozenset[int] = frozenset()):
        super().__init__(message)
        self.lost = lost
        """Slices whose connections ended. They are not necessarily dead: a host that aborts closes its connections."""


class Damaged(Exception):
    """Raised when bytes from a peer arrive changed."""


class Disagreement(Exception):
    """Raised when the hosts of a view do not do the same. This is an error in the program."""


class Kind(IntEnum):
    """What a frame contains."""

    PART = 1
    """A block of a part's vector, for the slice that sums this block."""
    SUM = 2
    """A block of the sum, from the slice that summed it."""
    ARRAY = 3
    """A block of an array of a transfer."""


_FIELDS = struct.Struct("<BqIIQI")
_CHECKSUM = struct.Struct("<I")
HEAD_BYTES = _FIELDS.size + _CHECKSUM.size


class Frame(NamedTuple):
    """Fields of a frame's head."""

    kind: Kind
    task: int
    """Step of a sum, or number of a transfer."""
    layout: int
    """Checksum of everything that the hosts of a task must agree on."""
    index: int
    """Number of the part, or of the array."""
    offset: int
    """First element in the vector, or first byte in the array."""
    length: int
    """Number of bytes that follow the head."""

    def head(self, content: memoryview) -> bytes:
        """Return the bytes that precede the content."""
        fields = _FIELDS.pack(*self)
        return fields + _CHECKSUM.pack(zlib.crc32(content, zlib.crc32(fields)))

    @classmethod
    def parse(cls, head: bytearray) -> Self:
        """Return the fields of a head.

        Raises:
            Damaged: no head has these fields.
        """
        kind, *values = _FIELDS.unpack_from(head)
        if kind in Kind:
            frame = cls(Kind(kind), *values)
            if 0 < frame.length <= BLOCK_BYTES:
                return frame
        raise Damaged(f"no frame begins with {bytes(head).hex()}")


def intact(head: bytearray, content: memoryview) -> bool:
    """Return whether a frame arrived as it was sent."""
    fields = memoryview(head)[: _FIELDS.size]
    return _CHECKSUM.unpack_from(head, _FIELDS.size)[0] == zlib.crc32(content, zlib.crc32(fields))


type Frames = Iterator[tuple[bytes, memoryview]]
"""Heads and contents of frames for one peer. Each is made when the one before it has been sent."""
