"""Frames that hosts of different slices send to each other, and what can go wrong with them."""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple, Self

import google_crc32c
import numpy as np

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
HEAD_BYTES = _FIELDS.size + 2 * _CHECKSUM.size
"""A head has the fields, the checksum of the content and its own checksum. All are CRC-32C, for which processors have
an instruction. It is six times as fast as the CRC of zlib."""


class Frame(NamedTuple):
    """Fields of a frame's head."""

    kind: Kind
    task: int
    """Step of a sum, or number of a transfer."""
    layout: int
    """Checksum of everything that the hosts of a task must agree on."""
    item: int
    """Number of the part, or of the array."""
    offset: int
    """First element in the vector, or first byte in the array."""
    length: int
    """Number of bytes that follow the head."""

    def head(self, content: np.ndarray) -> bytes:
        """Return the bytes that precede the content, which is uint8 [length]."""
        most = _FIELDS.pack(*self) + _CHECKSUM.pack(google_crc32c.value(content))
        return most + _CHECKSUM.pack(google_crc32c.value(most))

    @classmethod
    def parse(cls, head: bytearray) -> Self | None:
        """Return the fields of a head, or `None` if it is not as it was sent."""
        most = bytes(head[: -_CHECKSUM.size])
        if google_crc32c.value(most) != _CHECKSUM.unpack_from(head, len(most))[0]:
            return None
        kind, *values = _FIELDS.unpack_from(head)
        return cls(Kind(kind), *values)


def intact(head: bytearray, content: np.ndarray) -> bool:
    """Return whether the content of a frame arrived as it was sent."""
    return _CHECKSUM.unpack_from(head, _FIELDS.size)[0] == google_crc32c.value(content)


type Frames = Iterator[tuple[bytes, np.ndarray]]
"""Heads and contents of frames for one peer. Each is made when the one before it has been sent."""
