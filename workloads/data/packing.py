"""Whole conversations in rows of one length.

A row is never continued in the next one, since an answer without its prompt would be trained on. What is stored of a
token is twice its number, and 1 more where predicting it counts for nothing: in prompts, and in the padding that fills
a row up.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

_OPEN_ROWS = 64
"""Rows that wait for a conversation which fits the rest of them."""

_PADDING = 1
"""Token 0, not learned."""


def marked(tokens: np.ndarray, learned: bool) -> np.ndarray:
    """`tokens` as they are stored."""
    return 2 * tokens.astype(np.uint32) + (not learned)


@dataclass
class _Row:
    filled: int = 0
    parts: list[np.ndarray] = field(default_factory=list[np.ndarray])


@dataclass
class Rows:
    """Rows of `length` tokens while they are filled; which row a conversation goes to depends only on the ones before
    it."""

    length: int
    padding: int = 0
    """Tokens so far."""
    cut: int = 0
    """Conversations so far that are longer than a row and lost their end."""
    _open: list[_Row] = field(default_factory=list[_Row])

    def add(self, parts: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
        """Put a conversation, as stored, into the fullest row with room for it; what is full after that."""
        conversation = np.concatenate(parts)
        self.cut += len(conversation) > self.length
        conversation = conversation[: self.length]
        with_room = [row for row in self._open if row.filled + len(conversation) <= self.length]
        if not with_room:
            if len(self._open) == _OPEN_ROWS:
                yield self._closed(max(self._open, key=_filled))
            self._open.append(_Row())
            with_room = self._open[-1:]
        row = max(with_room, key=_filled)
        row.parts.append(conversation)
        row.filled += len(conversation)
        if row.filled == self.length:
            yield self._closed(row)

    def rest(self) -> Iterator[np.ndarray]:
        """The rows that are not full."""
        while self._open:
            yield self._closed(self._open[0])

    def _closed(self, row: _Row) -> np.ndarray:
        self._open = [other for other in self._open if other is not row]
        missing = self.length - row.filled
        self.padding += missing
        return np.concatenate([*row.parts, np.full(missing, _PADDING, np.uint32)])


def _filled(row: _Row) -> int:
    return row.filled
