"""Files of text as pieces small enough to hold in memory.

Formats are plain text (a file is a document), JSON lines, parquet and Arrow (a record is one), each of them compressed
or not, and folders of them as the hub of Hugging Face and the library `datasets` lay them out.
"""

import io
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePosixPath
from typing import Any, NamedTuple, Protocol

import fsspec
from fsspec.core import url_to_fs

from workloads.data.manifest import DataFault

_READ_AT_ONCE_BYTES = 1 << 20


_SPLITS = frozenset({"train", "training", "test", "testing", "validation", "valid", "val", "dev", "eval"})
"""Names of splits in the paths of a dataset, of which a folder without splits has none."""

_NO_DATA = frozenset({"dataset_dict.json", "dataset_info.json", "dataset_infos.json", "state.json"})
"""What `datasets` writes next to the data."""


class Piece(NamedTuple):
    """Consecutive text of one document, whole characters of UTF-8 if the file is UTF-8."""

    text: bytes
    ends_document: bool = False
    learned: bool = True
    """Whether predicting it counts."""
    special: bool = False
    """Whether special tokens in it count."""


class Fields(Protocol):
    """What is taken of a record."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the fields."""
        ...

    def pieces(self, record: object, place: str) -> Iterator[Piece]:
        """The document of a record, which error messages call `place`."""
        ...


@dataclass(frozen=True)
class TextField:
    """One field that holds the text."""

    name: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    def pieces(self, record: object, place: str) -> Iterator[Piece]:
        yield Piece(text_of(record, self.name, place), ends_document=True)


def data_files(path: str, split: str) -> list[str]:
    """`path` itself, or the files with records of one split below it if it is a folder, in the order of their names.

    A file is of the split that a folder on its way names, or the first word of its own name, such as `train` in
    `data/train-00000-of-00012.parquet`. A folder that names no split at all is taken as a whole.

    Raises:
        DataFault: the folder has no such file.
    """
    fs, folder = url_to_fs(path.rstrip("/"))
    if not fs.isdir(folder):
        return [path]
    names = ((name, name.removeprefix(folder).strip("/")) for name in sorted(fs.find(folder)))
    found = {name: _words(within) for name, within in names if _has_records(within)}
    if any(words & (_SPLITS | {split}) for words in found.values()):
        wanted = [name for name, words in found.items() if split in words]
    else:
        wanted = [*found]
    if not wanted:
        seen = ", ".join(sorted(_SPLITS & set().union(*found.values()))) or "none"
        raise DataFault(
            f"--input {path}: expected files of the split {split!r} in {', '.join(_FORMATS)}, got splits: {seen};"
            " name another by --split, or the files one by one"
        )
    return [fs.unstrip_protocol(name) if "://" in path else name for name in wanted]


def _words(path: str) -> frozenset[str]:
    """The folders on the way to a file, and the first word of its own name."""
    *folders, name = path.split("/")
    return frozenset([*folders, re.split(r"[-_.]", name)[0]])


def _has_records(path: str) -> bool:
    name = PurePosixPath(path)
    hidden = any(part.startswith((".", "_")) for part in name.parts)
    return not hidden and name.name not in _NO_DATA and any(suffix in _FORMATS for suffix in name.suffixes)


def read_pieces(path: str, fields: Fields) -> Iterator[Piece]:
    """The text of a local file or URL; the last suffix that names a format decides how it is read.

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
        raise DataFault(f"{path}: cannot be read to its end: {fault}; copy or download it again") from fault


def load_library(name: str, purpose: str) -> Any:
    """A library that preparing data needs and training does not, so no lock has it.

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
        raise DataFault(f"{path}: expected records in {', '.join(_FORMATS)}, got a file of plain text without fields")
    rest = b""
    while block := file.read(_READ_AT_ONCE_BYTES):
        text = rest + block
        cut = text.rfind(b"\n") + 1 or _last_character(text)
        yield Piece(text[:cut], ends_document=False)
        rest = text[cut:]
    yield Piece(rest, ends_document=True)


def _last_character(text: bytes) -> int:
    """Where the last character of UTF-8 begins, of which `text` may hold only the first bytes."""
    start = len(text) - 1
    while start > len(text) - 4 and start > 0 and text[start] & 0xC0 == 0x80:
        start -= 1
    return start


def _json_lines(file: Any, path: str, fields: Fields) -> Iterator[Piece]:
    for number, line in enumerate(io.BufferedReader(file, _READ_AT_ONCE_BYTES), 1):
        if line.strip():
            yield from fields.pieces(_parsed(line), f"{path} line {number}")


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return line[:40]


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
            f" name one by --text-field{'' if isinstance(fields, TextField) else ', --prompt-field, --messages-field'}"
        )


def _records(batches: Iterable[Any], path: str, fields: Fields) -> Iterator[Piece]:
    rows = (row for batch in batches for row in batch.to_pylist())
    for number, row in enumerate(rows, 1):
        yield from fields.pieces(row, f"{path} row {number}")


def text_of(record: object, name: str, place: str) -> bytes:
    """The text in a field of a record.

    Raises:
        DataFault: it has none; the message names its `place`.
    """
    text = record.get(name) if isinstance(record, dict) else None
    if not isinstance(text, str):
        raise DataFault(
            f"{place}: expected an object with text in {name!r}, got {str(record)[:80]};"
            " name the field by --text-field or repair the record"
        )
    # Half a surrogate pair is legal in JSON, but not in UTF-8.
    return text.encode(errors="replace")


_FORMATS: dict[str, Callable[[Any, str, Fields], Iterator[Piece]]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json_lines,
    ".parquet": _parquet,
    ".arrow": _arrow,
}
