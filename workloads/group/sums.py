"""Sums vectors of the parts of a batch over slices, one block at a time.

The vector is cut into as many chunks as there are slices. Every slice sends its parts of a chunk to the slice that owns
it, which adds them in the order of the parts and sends the sum to all. In this way the result does not depend on the
slices, nor on which of them computed which part.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import ml_dtypes
import numpy as np

from workloads.group.frames import BLOCK_BYTES, Disagreement, Frame, Frames, Kind

WIRE_TYPES = (np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16))

_ALIGNMENT = 64
"""Chunks and blocks begin at multiples of this number of elements, so that they do not share lines of a cache."""
_BLOCKS = 4
"""Number of blocks that a lane has of each chunk, unless they would be too small or too large."""
_SMALLEST_BLOCK_BYTES = 1 << 16


@dataclass(frozen=True)
class Layout:
    """How a vector is cut. It is the same on all hosts of a sum."""

    size: int
    """Number of elements."""
    wire: np.dtype
    """Type of the elements on the network, and of the result's precision."""
    holders: tuple[tuple[int, int], ...]
    """Each part with the slice that holds it, in the order of the parts."""
    slices: tuple[int, ...]
    streams: int

    @cached_property
    def checksum(self) -> int:
        return zlib.crc32(repr((self.size, str(self.wire), self.holders, self.slices, self.streams)).encode())

    def chunk(self, slice_: int) -> tuple[int, int]:
        """Return where the elements begin and end that a slice sums."""
        units, index = -(-self.size // _ALIGNMENT), self.slices.index(slice_)
        start, stop = (units * each // len(self.slices) * _ALIGNMENT for each in (index, index + 1))
        return min(start, self.size), min(stop, self.size)

    def blocks(self, slice_: int, stream: int) -> list[tuple[int, int]]:
        """Return where the blocks of a stream begin and end in the chunk of a slice."""
        start, stop = self.chunk(slice_)
        elements = min(max((stop - start) // (_BLOCKS * self.streams), self._smallest), self._largest)
        edges = [*range(start, stop, -(-elements // _ALIGNMENT) * _ALIGNMENT), stop]
        return list(pairwise(edges))[stream :: self.streams]

    def parts(self, slice_: int) -> list[int]:
        return [part for part, holder in self.holders if holder == slice_]

    @property
    def _smallest(self) -> int:
        return _SMALLEST_BLOCK_BYTES // self.wire.itemsize

    @property
    def _largest(self) -> int:
        return BLOCK_BYTES // self.wire.itemsize


@dataclass(frozen=True)
class Sum:
    """One sum on this host."""

    step: int
    layout: Layout
    slice: int
    own: Mapping[int, np.ndarray]
    """Vectors of the wire type by part."""
    out: np.ndarray
    """float32 vector for the result."""
    rounded: np.ndarray
    """Vector of the wire type for the sum of this slice's chunk."""


class Memory:
    """Memory of a lane that is used for one block after the other, because new memory is slow at first."""

    def __init__(self) -> None:
        self._free = list[np.ndarray]()
        self.float32 = np.empty(BLOCK_BYTES // WIRE_TYPES[1].itemsize, np.float32)

    def take(self) -> np.ndarray:
        """Return memory for the bytes of a block."""
        return self._free.pop() if self._free else np.empty(BLOCK_BYTES, np.uint8)

    def give_back(self, memory: np.ndarray) -> None:
        self._free.append(memory)


@dataclass
class _Block:
    """A block that this slice sums."""

    start: int
    stop: int
    added: int = 0
    """Number of parts that are in the sum. They are added in order."""
    came: dict[int, np.ndarray] = field(default_factory=dict[int, np.ndarray])
    """Bytes of parts that came and are not added yet."""
    placed: set[int] = field(default_factory=set[int])
    """Parts that came or are coming."""


class SumInLane:
    """The blocks of a sum that one lane adds, sends and receives."""

    sums = True

    def __init__(self, sum_: Sum, stream: int, memory: Memory):
        self._sum, self._stream, self._memory = sum_, stream, memory
        layout = sum_.layout
        self._wire = layout.wire
        self._others = [each for each in layout.slices if each != sum_.slice]
        self._blocks = {start: _Block(start, stop) for start, stop in layout.blocks(sum_.slice, stream)}
        self._sums = {start: (each, stop) for each in self._others for start, stop in layout.blocks(each, stream)}
        """Owner and end of every block whose sum has not come, by its start."""
        self._missing = {
            each: len(self._blocks) * len(layout.parts(each)) + len(layout.blocks(each, stream))
            for each in self._others
        }
        """Number of frames that must come from each peer."""
        self._filling = dict[int, np.ndarray]()
        """Memory that the current frame of a peer fills."""

    @property
    def number(self) -> int:
        return self._sum.step

    @property
    def layout(self) -> int:
        return self._sum.layout.checksum

    def awaits(self, peer: int) -> bool:
        return self._missing[peer] > 0

    def begin(self) -> Iterator[tuple[int, Frames]]:
        """Send own parts. If others have none, also add them; if not, that is faster when a frame has come."""
        for each in self._others:
            yield each, self._frames_for(each)
        if not any(map(self._sum.layout.parts, self._others)):
            for block in self._blocks.values():
                yield from self._add(block)

    def place(self, peer: int, frame: Frame) -> np.ndarray:
        """Return where the content of a frame goes: a sum to the result if it is of its type, the rest to a block."""
        start, itemsize = frame.offset, self._wire.itemsize
        if frame.kind is Kind.SUM:
            owner, stop = self._sums.get(start, (None, 0))
            expected = owner == peer
        else:
            block = self._blocks.get(start)
            stop = block.stop if block else 0
            held = (frame.item, peer) in self._sum.layout.holders
            expected = block is not None and held and frame.item not in block.placed
            if block:
                block.placed.add(frame.item)
        if not expected or frame.length != (stop - start) * itemsize:
            raise Disagreement(f"slice {peer} sent a frame that is not expected: {frame}")
        if frame.kind is Kind.SUM and self._wire == self._sum.out.dtype:
            return self._sum.out[start:stop].view(np.uint8)
        self._filling[peer] = memory = self._memory.take()
        return memory[: frame.length]

    def arrived(self, peer: int, frame: Frame) -> Iterable[tuple[int, Frames]]:
        self._missing[peer] -= 1
        memory = self._filling.pop(peer, None)
        if frame.kind is Kind.PART:
            assert memory is not None
            block = self._blocks[frame.offset]
            block.came[frame.item] = memory
            return self._add(block)
        del self._sums[frame.offset]
        if memory is not None:
            count = frame.length // self._wire.itemsize
            np.copyto(self._sum.out[frame.offset : frame.offset + count], memory.view(self._wire)[:count])
            self._memory.give_back(memory)
        return ()

    def _frames_for(self, peer: int) -> Frames:
        layout, own = self._sum.layout, self._sum.own
        for start, stop in layout.blocks(peer, self._stream):
            for part in layout.parts(self._sum.slice):
                yield self._frame(Kind.PART, part, start, own[part][start:stop])

    def _add(self, block: _Block) -> Iterable[tuple[int, Frames]]:
        """Add what came to a block in the order of the parts, and return the sum for all if it is complete."""
        holders, total = self._sum.layout.holders, self._sum.out[block.start : block.stop]
        # Infinite and undefined numbers are the caller's business.
        with np.errstate(all="ignore"):
            while block.added < len(holders):
                part, holder = holders[block.added]
                memory = None if holder == self._sum.slice else block.came.pop(part, None)
                if memory is not None:
                    self._accumulate(total, memory.view(self._wire)[: total.size], first=not block.added)
                    self._memory.give_back(memory)
                elif holder == self._sum.slice:
                    self._accumulate(total, self._sum.own[part][block.start : block.stop], first=not block.added)
                else:
                    return ()
                block.added += 1
            return self._finish(block, total)

    def _accumulate(self, total: np.ndarray, part: np.ndarray, *, first: bool) -> None:
        if first:
            np.copyto(total, part)
        elif part.dtype == total.dtype:
            np.add(total, part, out=total)
        else:
            # Adding mixed types takes twice the time.
            wide = self._memory.float32[: part.size]
            np.copyto(wide, part)
            np.add(total, wide, out=total)

    def _finish(self, block: _Block, total: np.ndarray) -> Iterable[tuple[int, Frames]]:
        """Round the sum of a block to the wire's type, here as for all others, and return it for them."""
        result = total
        if self._wire != total.dtype:
            first, _ = self._sum.layout.chunk(self._sum.slice)
            result = self._sum.rounded[block.start - first : block.stop - first]
            np.copyto(result, total, casting="unsafe")
            np.copyto(total, result)
        frame = self._frame(Kind.SUM, 0, block.start, result)
        return [(each, iter([frame])) for each in self._others]

    def _frame(self, kind: Kind, index: int, start: int, values: np.ndarray) -> tuple[bytes, np.ndarray]:
        content = values.view(np.uint8)
        frame = Frame(kind, self._sum.step, self.layout, index, start, content.size)
        return frame.head(content), content
