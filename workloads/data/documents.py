"""Reads files of text as pieces that are small enough for memory.

Formats are plain text (each file is a document), JSON lines, parquet and Arrow (each record is a document), compressed
or not, and folders of them in the layout of the Hugging Face hub and of the library `datasets`.

A record has a text, or a conversation of which only the answers are learned: a list of messages with `role` and
`content`, or a prompt and its completion, which count as one message of a user and one of an assistant.
"""

import io
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePosixPath
from typing import Any, NamedTuple, Protocol

import fsspec
from fsspec.core import url_to_fs

from workloads.data.token_folder import DataFault

_READ_AT_ONCE_BYTES = 1 << 20

_SPLITS = frozenset({"train", "training", "test", "testing", "validation", "valid", "val", "dev", "eval"})
"""Names of splits in the paths of a dataset. A folder without splits has none of them in its paths."""

_NO_DATA = frozenset({"dataset_dict.json", "dataset_info.json", "dataset_infos.json", "state.json"})
"""Files that `datasets` writes next to the data."""

ANSWERING = frozenset({"assistant", "model"})
"""Roles whose messages are learned."""

ROLE, CONTENT = "{role}", "{content}"


class Piece(NamedTuple):
    """Consecutive text of one document. It has only whole UTF-8 characters if the file is UTF-8."""

    text: bytes
    ends_document: bool = False
    learned: bool = True
    """Whether its predictions count in the loss."""
    special: bool = False
    """Whether special tokens in it are recognised."""


class Fields(Protocol):
    """The fields of a record to use."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the fields."""
        ...

    def pieces(self, record: object, place: str) -> Iterator[Piece]:
        """Yield the document of a record. Error messages call the record `place`."""
        ...


@dataclass(frozen=True)
class TextField:
    """One field with the text."""

    name: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    def pieces(self, record: object, place: str) -> Iterator[Piece]:
        yield Piece(text_of(record, self.name, place), ends_document=True)


def data_files(path: str, split: str) -> list[str]:
    """Return `path`, or for a folder, the files below it with records of one split, sorted by name.

    The split of a file is the name of a folder on its path, or the first word of its own name, such as `train` in
    `data/train-00000-of-00012.parquet`. If no path in the folder has the name of a split, all files are used.

    Raises:
        DataFault: the folder has no such file.
    """
    fs, folder = url_to_fs(path.rstrip("/"))
    if not fs.isdir(folder):
        return [path]
    names = ((name, name.removeprefix(folder).strip("/")) for name in sorted(fs.find(folder)))
    found = {name: _words(within) for name, within in names if _has_records(within)}
    has_splits = any(words & (_SPLITS | {split}) for words in found.values())
    wanted = [name for name, words in found.items() if split in words or not has_splits]
    if not wanted:
        seen = ", ".join(sorted(_SPLITS & set().union(*found.values()))) or "none"
        raise DataFault(
            f"--input {path}: expected files of the split {split!r} in {', '.join(_FORMATS)}, got splits: {seen};"
            " choose another with --split, or give the files one by one"
        )
    return [fs.unstrip_protocol(name) if "://" in path else name for name in wanted]


def _words(path: str) -> frozenset[str]:
    """Return the folders on the path of a file, and the first word of its own name."""
    *folders, name = path.split("/")
    return frozenset([*folders, re.split(r"[-_.]", name)[0]])


def _has_records(path: str) -> bool:
    name = PurePosixPath(path)
    hidden = any(part.startswith((".", "_")) for part in name.parts)
    return not hidden and name.name not in _NO_DATA and any(suffix in _FORMATS for suffix in name.suffixes)


def read_pieces(path: str, fields: Fields) -> Iterator[Piece]:
    """Yield the text of a local file or URL. The last suffix that is a format determines how it is read.

    Raises:
        DataFault: the file is damaged, a record lacks one of `fields`, or a library is missing.
    """
    suffixes = [suffix for suffix in PurePosixPath(path).suffixes if suffix in _FORMATS]
    read = _FORMATS[suffixes[-1]] if suffixes else _text
    if path.endswith(".zst"):
        load_library("zstandard", f"{path}: zst")
    try:
        with fsspec.open(path, "rb", compression="infer") as file:
            yield from read(file, path, fields)
    except DataFault:
        raise
    except (OSError, EOFError, ValueError, zlib.error) as fault:
        raise DataFault(f"{path} cannot be read to its end: {fault}; copy or download it again") from fault


def load_library(name: str, purpose: str) -> Any:
    """Import a library that is needed to prepare data but not to train, and so is not in the lock.

    Raises:
        DataFault: it is not installed.
    """
    try:
        return import_module(name)
    except ImportError:
        top = name.split(".")[0]
        raise DataFault(f"{purpose} needs the library {top}, which is not installed; pip install {top}") from None


def _text(file: Any, path: str, fields: Fields) -> Iterator[Piece]:
    if not isinstance(fields, TextField):
        raise DataFault(f"{path}: expected records in {', '.join(_FORMATS)}, got plain text, which has no fields")
    rest = b""
    while block := file.read(_READ_AT_ONCE_BYTES):
        text = rest + block
        cut = text.rfind(b"\n") + 1 or _last_character(text)
        yield Piece(text[:cut], ends_document=False)
        rest = text[cut:]
    yield Piece(rest, ends_document=True)


def _last_character(text: bytes) -> int:
    """Return where the last UTF-8 character begins. `text` may have only its first bytes."""
    start = len(text) - 1
    while start > len(text) - 4 and start > 0 and text[start] & 0xC0 == 0x80:
        start -= 1
    return start


def _json_lines(file: Any, path: str, fields: Fields) -> Iterator[Piece]:
    for number, line in enumerate(io.BufferedReader(file, _READ_AT_ONCE_BYTES), 1):
        if line.strip():
            record: object = line[:40]
            # A line that is not JSON is shown in the error about the missing field.
            with suppress(ValueError):
                record = json.loads(line)
            yield from fields.pieces(record, f"{path} line {number}")


def _parquet(file: Any, path: str, fields: Fields) -> Iterator[Piece]:
    parquet = load_library("pyarrow.parquet", f"{path}: parquet").ParquetFile(file)
    _require_columns(parquet.schema_arrow.names, path, fields)
    yield from _records(parquet.iter_batches(columns=[*fields.columns]), path, fields)


def _arrow(file: Any, path: str, fields: Fields) -> Iterator[Piece]:
    reader = load_library("pyarrow", f"{path}: Arrow").ipc.open_stream(file)
    _require_columns(reader.schema.names, path, fields)
    yield from _records((batch.select([*fields.columns]) for batch in reader), path, fields)


def _require_columns(names: Sequence[str], path: str, fields: Fields) -> None:
    if missing := [column for column in fields.columns if column not in names]:
        raise DataFault(
            f"{path}: expected a column {' and '.join(map(repr, missing))}, got {', '.join(names)};"
            f" set --text-field{'' if isinstance(fields, TextField) else ', --prompt-field or --messages-field'}"
        )


def _records(batches: Iterable[Any], path: str, fields: Fields) -> Iterator[Piece]:
    rows = (row for batch in batches for row in batch.to_pylist())
    for number, row in enumerate(rows, 1):
        yield from fields.pieces(row, f"{path} row {number}")


def text_of(record: object, name: str, place: str) -> bytes:
    """Return the text in a field of a record.

    Raises:
        DataFault: the field has no text. The message has the `place` of the record.
    """
    text = record.get(name) if isinstance(record, dict) else None
    if not isinstance(text, str):
        raise DataFault(
            f"{place}: expected an object with text in {name!r}, got {str(record)[:80]};"
            " set --text-field or repair the record"
        )
    # Half of a surrogate pair is legal in JSON, but not in UTF-8.
    return text.encode(errors="replace")


_FORMATS: dict[str, Callable[[Any, str, Fields], Iterator[Piece]]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json_lines,
    ".parquet": _parquet,
    ".arrow": _arrow,
}


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
