"""Converts conversations to pieces of text, where only the answers are learned.

A record has a list of messages with `role` and `content`, or a prompt and its completion, which count as one message of
a user and one of an assistant.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from workloads.data.documents import Piece, text_of
from workloads.data.manifest import DataFault

ANSWERING = frozenset({"assistant", "model"})
"""Roles whose messages are learned."""

ROLE, CONTENT = "{role}", "{content}"


@dataclass(frozen=True)
class Turns:
    """Converts records to conversations."""

    columns: tuple[str, ...]
    """Field of the messages, or fields of prompt and completion."""
    template: str
    """Template of a message with `{role}` and `{content}`. In an answer, the content and the template after it are
    learned. Special tokens are recognised in the template but not in the content."""
    begin: str
    """Text before the first message, where special tokens are recognised."""

    def __post_init__(self) -> None:
        if self.template.count(CONTENT) != 1:
            raise DataFault(f"--turn: expected a text with {CONTENT} exactly once, got {self.template!r}")

    def pieces(self, record: object, place: str) -> Iterator[Piece]:
        """Yield the conversation of a record.

        Raises:
            DataFault: the record has no conversation. The message has its `place`.
        """
        if self.begin:
            yield Piece(self.begin.encode(), learned=False, special=True)
        learned = False
        for role, content in self._messages(record, place):
            learned = role in ANSWERING
            head, tail = (part.replace(ROLE, role).encode() for part in self.template.split(CONTENT))
            yield Piece(head, learned=False, special=True)
            yield Piece(content, learned=learned)
            yield Piece(tail, learned=learned, special=True)
        yield Piece(b"", ends_document=True, learned=learned)

    def _messages(self, record: object, place: str) -> list[tuple[str, bytes]]:
        column, *completion = self.columns
        if completion:
            texts = (text_of(record, name, place) for name in self.columns)
            return [*zip(("user", "assistant"), texts, strict=True)]
        messages = record.get(column) if isinstance(record, Mapping) else None
        if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
            raise DataFault(
                f"{place}: expected an object with a list of messages in {column!r}, got {str(record)[:80]}; set"
                " --messages-field or repair the record"
            )
        parts = [[text_of(message, name, place) for name in ("role", "content")] for message in messages]
        return [(role.decode(), content) for role, content in parts]
