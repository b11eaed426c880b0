"""Transfers a list of arrays from one slice's memory to another's."""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from workloads.group.frames import BLOCK_BYTES, Disagreement, Frame, Frames, Kind


@dataclass(frozen=True)
class Transfer:
    """Arrays that one slice sends and another receives into arrays of the same shapes and types."""

    number: int
    layout: int
    """Checksum of the name, shapes and types."""
    contents: Sequence[np.ndarray]
    """Bytes of each array."""

    @classmethod
    def of(cls, name: str, arrays: Sequence[np.ndarray]) -> Self:
        if scattered := [index for index, array in enumerate(arrays) if not array.flags.c_contiguous]:
            raise ValueError(f"arrays {scattered} of {name!r} are not contiguous in memory; copy them before")
        described = repr((name, [(array.shape, str(array.dtype)) for array in arrays]))
        contents = [array.reshape(-1).view(np.uint8) for array in arrays]
        return cls(zlib.crc32(name.encode()), zlib.crc32(described.encode()), contents)

    def blocks(self, stream: int, streams: int) -> Iterator[tuple[int, int, int]]:
        """Yield the index of the array, and where in it the bytes begin and end, of each block of a stream."""
        turn = 0
        for index, content in enumerate(self.contents):
            for start in range(0, content.size, BLOCK_BYTES):
                if turn % streams == stream:
                    yield index, start, min(start + BLOCK_BYTES, content.size)
                turn += 1


class _TransferInLane:
    sums = False

    def __init__(self, transfer: Transfer, peer: int, stream: int, streams: int):
        self._transfer, self._peer = transfer, peer
        self._blocks = {(index, start): stop for index, start, stop in transfer.blocks(stream, streams)}

    @property
    def number(self) -> int:
        return self._transfer.number

    @property
    def layout(self) -> int:
        return self._transfer.layout


class Sending(_TransferInLane):
    """The blocks that one lane sends."""

    def begin(self) -> Iterable[tuple[int, Frames]]:
        return [(self._peer, self._frames())]

    def place(self, peer: int, frame: Frame) -> np.ndarray:
        raise Disagreement(f"slice {peer} sent a frame to a host that sends to slice {self._peer}: {frame}")

    def arrived(self, peer: int, frame: Frame) -> Iterable[tuple[int, Frames]]:
        return ()

    def awaits(self, peer: int) -> bool:
        return False

    def _frames(self) -> Frames:
        for (index, start), stop in self._blocks.items():
            content = self._transfer.contents[index][start:stop]
            yield Frame(Kind.ARRAY, self.number, self.layout, index, start, content.size).head(content), content


class Receiving(_TransferInLane):
    """The blocks that one lane receives."""

    def begin(self) -> Iterable[tuple[int, Frames]]:
        return ()

    def place(self, peer: int, frame: Frame) -> np.ndarray:
        stop = self._blocks.get((frame.item, frame.offset))
        if peer != self._peer or stop is None or frame.length != stop - frame.offset:
            raise Disagreement(f"slice {peer} sent a frame that is not expected: {frame}")
        return self._transfer.contents[frame.item][frame.offset : stop]

    def arrived(self, peer: int, frame: Frame) -> Iterable[tuple[int, Frames]]:
        del self._blocks[frame.item, frame.offset]
        return ()

    def awaits(self, peer: int) -> bool:
        return peer == self._peer and bool(self._blocks)
