import gzip
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workloads.data import documents
from workloads.data.documents import Piece, read_pieces
from workloads.data.manifest import DataFault


def written(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.sampled_from("a\né€😀"), max_size=60), st.integers(4, 20))
def test_a_text_file_is_one_document_in_pieces_of_whole_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, size: int
) -> None:
    monkeypatch.setattr(documents, "_READ_AT_ONCE_BYTES", size)
    pieces = list(read_pieces(written(tmp_path / "some.txt", text.encode()), "text"))
    assert "".join(piece.text.decode() for piece in pieces) == text
    assert [piece.ends_document for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert all(len(piece.text) < 2 * size + 4 for piece in pieces)


@pytest.mark.parametrize("name", ["some.jsonl", "some.json.gz"])
def test_each_json_line_is_a_document_compressed_or_not(tmp_path: Path, name: str) -> None:
    lines = "\n\n".join(json.dumps({"body": text, "id": 7}) for text in ("one\ntwo", "drei €")).encode()
    path = written(tmp_path / name, gzip.compress(lines) if name.endswith(".gz") else lines)
    assert list(read_pieces(path, "body")) == [Piece(b"one\ntwo", True), Piece("drei €".encode(), True)]


@pytest.mark.parametrize("line", ['{"body": "x"}', '{"text": 3}', "[1]", "not json"])
def test_a_record_without_text_is_named_by_file_and_line(tmp_path: Path, line: str) -> None:
    path = written(tmp_path / "some.jsonl", f'{{"text": "fine"}}\n{line}\n'.encode())
    with pytest.raises(
        DataFault, match=r"some.jsonl line 2: expected an object with text in 'text', got .*--text-field"
    ):
        list(read_pieces(path, "text"))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "some.txt.gz", gzip.compress(b"some text" * 1000)[:-20])
    with pytest.raises(DataFault, match=r"some.txt.gz: cannot be read to its end: Compressed file ended"):
        list(read_pieces(path, "text"))


class OneColumn:
    """What is used of `pyarrow.parquet.ParquetFile`, over the lines of the file."""

    def __init__(self, file: documents.Any):
        self._lines = file.read().decode().split()
        self.schema_arrow = SimpleNamespace(names=["text"])

    def iter_batches(self, columns: list[str]) -> list[SimpleNamespace]:
        return [SimpleNamespace(to_pylist=lambda: [{columns[0]: line} for line in self._lines])]


def test_each_row_of_parquet_is_a_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", SimpleNamespace(ParquetFile=OneColumn))
    path = written(tmp_path / "some.parquet", b"one two")
    assert list(read_pieces(path, "text")) == [Piece(b"one", True), Piece(b"two", True)]
    with pytest.raises(DataFault, match="expected a column 'body', got text; name one by --text-field"):
        list(read_pieces(path, "body"))


def test_a_missing_library_is_told_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "pyarrow.parquet", raising=False)
    with pytest.raises(DataFault, match=r"some.parquet: parquet needs the library pyarrow.*; pip install pyarrow"):
        list(read_pieces(written(tmp_path / "some.parquet", b""), "text"))
