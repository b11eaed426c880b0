import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workloads.data import documents
from workloads.data.documents import Piece, TextField, Turns, data_files, read_pieces
from workloads.data.token_folder import DataFault


def written(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.sampled_from("a\né€😀"), max_size=60), st.integers(4, 20))
def test_a_text_file_is_one_document_in_pieces_of_whole_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, size: int
) -> None:
    monkeypatch.setattr(documents, "_READ_AT_ONCE_BYTES", size)
    pieces = list(read_pieces(written(tmp_path / "some.txt", text.encode()), TextField("text")))
    assert "".join(piece.text.decode() for piece in pieces) == text
    assert [piece.ends_document for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert all(len(piece.text) < 2 * size + 4 for piece in pieces)


@pytest.mark.parametrize("name", ["some.jsonl", "some.json.gz"])
def test_each_json_line_is_a_document_compressed_or_not(tmp_path: Path, name: str) -> None:
    lines = "\n\n".join(json.dumps({"body": text, "id": 7}) for text in ("one\ntwo", "drei €")).encode()
    path = written(tmp_path / name, gzip.compress(lines) if name.endswith(".gz") else lines)
    assert list(read_pieces(path, TextField("body"))) == [Piece(b"one\ntwo", True), Piece("drei €".encode(), True)]


@pytest.mark.parametrize("line", ['{"body": "x"}', '{"text": 3}', "[1]", "not json"])
def test_a_record_without_text_is_named_by_file_and_line(tmp_path: Path, line: str) -> None:
    path = written(tmp_path / "some.jsonl", f'{{"text": "fine"}}\n{line}\n'.encode())
    with pytest.raises(
        DataFault, match=r"some.jsonl line 2: expected an object with text in 'text', got .*--text-field"
    ):
        list(read_pieces(path, TextField("text")))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "some.txt.gz", gzip.compress(b"some text" * 1000)[:-20])
    with pytest.raises(DataFault, match=r"some.txt.gz cannot be read to its end: Compressed file ended"):
        list(read_pieces(path, TextField("text")))


class OneColumn:
    """The used part of `pyarrow.parquet.ParquetFile` and of `pyarrow.ipc`, over the lines of the file."""

    def __init__(self, file: documents.Any):
        self._lines = file.read().decode().split()
        self.schema = self.schema_arrow = SimpleNamespace(names=["text"])

    def iter_batches(self, columns: list[str]) -> list[SimpleNamespace]:
        return [SimpleNamespace(to_pylist=lambda: [{columns[0]: line} for line in self._lines])]

    def __iter__(self) -> Iterator[SimpleNamespace]:
        for line in self._lines:
            yield SimpleNamespace(select=lambda names, line=line: SimpleNamespace(to_pylist=lambda: [{names[0]: line}]))


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_each_row_of_a_table_is_a_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", SimpleNamespace(ipc=SimpleNamespace(open_stream=OneColumn)))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", SimpleNamespace(ParquetFile=OneColumn))
    path = written(tmp_path / f"some.{kind}", b"one two")
    assert list(read_pieces(path, TextField("text"))) == [Piece(b"one", True), Piece(b"two", True)]
    with pytest.raises(DataFault, match="expected a column 'body', got text; set --text-field"):
        list(read_pieces(path, TextField("body")))


@pytest.mark.parametrize(
    ("name", "library", "fault"),
    [
        ("some.jsonl.zst", "zstandard", "zst needs the library zstandard"),
        ("some.parquet", "pyarrow", "parquet needs the library pyarrow.*; pip install pyarrow"),
    ],
)
def test_a_missing_library_is_reported_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, library: str, fault: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, "pyarrow.parquet", raising=False)
    with pytest.raises(DataFault, match=f"{name}: {fault}"):
        list(read_pieces(written(tmp_path / name, b""), TextField("text")))


@pytest.mark.parametrize(
    ("split", "expected", "others"),
    [
        ("train", "data/train-00000-of-2.parquet data/train-00001-of-2.parquet", "README.md data/test-0.parquet"),
        ("validation", "en/validation.jsonl.gz", "en/train.jsonl.gz .cache/train.jsonl"),
        ("train", "train/data-00000-of-1.arrow", "dataset_dict.json train/state.json test/data-00000-of-1.arrow"),
        ("train", "data-00000-of-00001.arrow", "dataset_info.json state.json"),
        ("my", "my-split_0.jsonl", "train.jsonl"),
    ],
    ids=["the hub", "the hub with folders", "DatasetDict.save_to_disk", "Dataset.save_to_disk", "a part of the name"],
)
@pytest.mark.parametrize("remote", [False, True])
def test_a_folder_gives_the_files_of_a_split_in_the_order_of_their_names(
    tmp_path: Path, split: str, expected: str, others: str, remote: bool
) -> None:
    for name in [*reversed(expected.split()), *others.split()]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    if not remote:
        assert data_files(str(tmp_path), split) == [str(tmp_path / name) for name in expected.split()]
        return
    memory = fsspec.filesystem("memory")
    memory.put(str(tmp_path), "/hub/set", recursive=True)
    try:
        assert data_files("memory://hub/set/", split) == [f"memory:///hub/set/{name}" for name in expected.split()]
    finally:
        memory.rm("/hub", recursive=True)


def test_a_folder_without_the_split_names_those_that_it_has(tmp_path: Path) -> None:
    for name in ("test-0.parquet", "dev.jsonl"):
        (tmp_path / name).write_text("")
    with pytest.raises(
        DataFault, match="expected files of the split 'train' in .*, got splits: dev, test; choose another"
    ):
        data_files(str(tmp_path), "train")
    # A file is taken whatever its name.
    assert data_files(str(tmp_path / "dev.jsonl"), "train") == [str(tmp_path / "dev.jsonl")]
    (tmp_path / "nothing").mkdir()
    with pytest.raises(DataFault, match="got splits: none"):
        data_files(str(tmp_path / "nothing"), "train")


CHAT = Turns(("messages",), "<{role}>{content}</>", begin="")


def pieces(fields: Turns, record: Any) -> list[Piece]:
    return [piece for piece in fields.pieces(record, "here") if piece.text]


def message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def test_of_messages_the_answers_and_what_ends_them_are_learned() -> None:
    found = pieces(CHAT, {"messages": [message("user", "a"), message("assistant", "b"), message("user", "c")]})
    assert b"".join(piece.text for piece in found) == b"<user>a</><assistant>b</><user>c</>"
    assert [piece.text for piece in found if piece.learned] == [b"b", b"</>"]
    assert [piece.text for piece in found if not piece.special] == [b"a", b"b", b"c"]


@pytest.mark.parametrize("last", ["user", "model"])
def test_the_mark_behind_a_conversation_is_learned_if_its_last_message_is(last: str) -> None:
    *_, end = CHAT.pieces({"messages": [message("user", "a"), message(last, "b")]}, "here")
    assert end == Piece(b"", ends_document=True, learned=last == "model")


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        ({"text": "x"}, "here: expected an object with a list of messages in 'messages', got {'text'"),
        ({"messages": "x"}, "here: expected an object with a list of messages"),
        ({"messages": []}, "here: expected an object with a list of messages"),
        ({"messages": [{"role": "user"}]}, "here: expected an object with text in 'content'"),
        ({"messages": ["x"]}, "here: expected an object with text in 'role'"),
    ],
)
def test_a_record_without_messages_is_named(record: Any, fault: str) -> None:
    with pytest.raises(DataFault, match=fault):
        list(CHAT.pieces(record, "here"))


def test_a_template_without_room_for_the_content_is_refused() -> None:
    with pytest.raises(DataFault, match=r"--turn: expected a text with {content} exactly once, got '{role}'"):
        Turns(("messages",), "{role}", "")


def test_a_file_of_plain_text_has_no_prompts(tmp_path: Path) -> None:
    (tmp_path / "some.txt").write_text("x")
    with pytest.raises(DataFault, match=r"some.txt: expected records in .jsonl, .*, got plain text"):
        list(read_pieces(str(tmp_path / "some.txt"), CHAT))
