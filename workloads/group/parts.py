"""The parts of a batch, and which slice computes which of them.

A batch has as many equal parts as the job has slices. Parts are numbered through from the first batch, so that part
`number` of a run always has the same rows.
"""

from collections.abc import Sequence


def parts_of(batch: int, slices: int) -> range:
    """Return the parts of batch `batch` of a job with `slices` slices."""
    return range(batch * slices, (batch + 1) * slices)


def deal(parts: Sequence[int], present: Sequence[int], slices: int) -> dict[int, int]:
    """Return the slice that computes each part: its own slice, or if that is lost, one of those that are present.

    A slice keeps its own part when another slice is lost, because it may have computed it already.
    """
    lost = [part for part in parts if part % slices not in present]
    dealt = {part: present[number % len(present)] for number, part in enumerate(lost)}
    return {part: dealt.get(part, part % slices) for part in parts}


def next_parts(first: int, present: Sequence[int]) -> dict[int, int]:
    """Return one part for each slice that is present, from part `first` on."""
    return {first + number: one for number, one in enumerate(present)}
