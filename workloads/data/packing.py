"""Packs whole conversations into rows of one length.

A row never continues in the next one, because that would train on an answer without its prompt. A token is stored as
twice its number, plus 1 if its prediction does not count: in prompts, and in the padding at the end of a row.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Annotated

import numpy as np
from pydantic import Field

from workloads.spec import Spec

_OPEN_ROWS = 64
"""Number of rows that wait for a conversation that fits into the rest of them."""

_PADDING = 1
"""Stored form of token 0 that is not learned."""


class PackedRows(Spec):
    """Facts of packed conversations in the manifest of their token folder."""

    sequence_length: Annotated[int, Field(gt=0)]
    """Tokens of a row minus one. The folder can train only with this sequence length."""
    padding: int
    """Number of padding tokens."""
    cut: int
    """Number of conversations that were longer than a row and lost their end."""


def mark(tokens: np.ndarray, learned: bool) -> np.ndarray:
    """Return `tokens` in their stored form."""
    return 2 * tokens.astype(np.uint32) + (not learned)


@dataclass
class _Row:
    filled: int = 0
    parts: list[np.ndarray] = field(default_factory=list[np.ndarray])


@dataclass
class Rows:
    """Rows of `length` tokens while they are filled.

    The row of a conversation depends only on the conversations before it.
    """

    length: int
    padding: int = 0
    """Number of padding tokens so far."""
    cut: int = 0
    """Number of conversations so far that are longer than a row and lost their end."""
    _open: list[_Row] = field(default_factory=list[_Row])

    def add(self, parts: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
        """Put a conversation in stored form into the fullest row with room for it. Yield rows that are then full."""
        conversation = np.concatenate(parts)
        self.cut += len(conversation) > self.length
        conversation = conversation[: self.length]
        with_room = [row for row in self._open if row.filled + len(conversation) <= self.length]
        if not with_room:
            if len(self._open) == _OPEN_ROWS:
                yield self._close(max(self._open, key=attrgetter("filled")))
            self._open.append(_Row())
            with_room = self._open[-1:]
        row = max(with_room, key=attrgetter("filled"))
        row.parts.append(conversation)
        row.filled += len(conversation)
        if row.filled == self.length:
            yield self._close(row)

    def rest(self) -> Iterator[np.ndarray]:
        while self._open:
            yield self._close(self._open[0])

    def _close(self, row: _Row) -> np.ndarray:
        self._open = [other for other in self._open if other is not row]
        missing = self.length - row.filled
        self.padding += missing
        return np.concatenate([*row.parts, np.full(missing, _PADDING, np.uint32)])
