"""Files of text as pieces small enough to hold in memory.

Owns the formats: plain text (a file is a document), JSON lines and parquet (a record is one), each of
them compressed or not. Knows nothing of tokens.
"""

import io
import json
import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import fsspec

from workloads.data.manifest import DataFault

_READ_AT_ONCE_BYTES = 1 << 20


class Piece(NamedTuple):
    """Consecutive text of one document, whole characters of UTF-8 if the file is UTF-8."""

    text: bytes
    ends_document: bool


def read_pieces(path: str, text_field: str) -> Iterator[Piece]:
    """The text of a local file or URL; the last suffix that names a format decides how it is read.

    Raises:
        DataFault: the file is damaged, a record has no text in `text_field`, or a library is missing.
    """
    suffixes = [suffix for suffix in PurePosixPath(path).suffixes if suffix in _FORMATS]
    read = _FORMATS[suffixes[-1]] if suffixes else _text
    try:
        with fsspec.open(path, "rb", compression="infer") as file:
            yield from read(file, path, text_field)
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


def _text(file: Any, _path: str, _text_field: str) -> Iterator[Piece]:
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


def _json_lines(file: Any, path: str, text_field: str) -> Iterator[Piece]:
    for number, line in enumerate(io.BufferedReader(file, _READ_AT_ONCE_BYTES), 1):
        if line.strip():
            yield Piece(_field(_parsed(line), text_field, f"{path} line {number}"), ends_document=True)


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return line[:40]


def _parquet(file: Any, path: str, text_field: str) -> Iterator[Piece]:
    parquet = load_library("pyarrow.parquet", f"{path}: parquet").ParquetFile(file)
    if text_field not in parquet.schema_arrow.names:
        names = ", ".join(parquet.schema_arrow.names)
        raise DataFault(f"{path}: expected a column {text_field!r}, got {names}; name one by --text-field")
    rows = (row for batch in parquet.iter_batches(columns=[text_field]) for row in batch.to_pylist())
    for number, row in enumerate(rows, 1):
        yield Piece(_field(row, text_field, f"{path} row {number}"), ends_document=True)


def _field(record: object, name: str, place: str) -> bytes:
    text = record.get(name) if isinstance(record, dict) else None
    if not isinstance(text, str):
        raise DataFault(
            f"{place}: expected an object with text in {name!r}, got {str(record)[:80]};"
            " name the field by --text-field or repair the record"
        )
    # Half a surrogate pair is legal in JSON, but not in UTF-8.
    return text.encode(errors="replace")


_FORMATS: dict[str, Callable[[Any, str, str], Iterator[Piece]]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json_lines,
    ".parquet": _parquet,
}
