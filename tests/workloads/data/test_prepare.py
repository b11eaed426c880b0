import json
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from workloads.data.documents import TextField, Turns, data_files
from workloads.data.encoders import ByteEncoder
from workloads.data.packing import PackedRows
from workloads.data.prepare import Progress, Request, prepare
from workloads.data.token_folder import DataFault, Manifest, SourceFile, TokenFolder


def request(tmp_path: Path, *inputs: Path, end_of_document: str = "|") -> Request:
    return Request(tuple(map(str, inputs)), str(tmp_path / "tokens"), TextField("text"), end_of_document)


def two_files(tmp_path: Path) -> list[Path]:
    text, lines = tmp_path / "first.txt", tmp_path / "second.jsonl"
    text.write_bytes(b"one\ntwo\xff")
    lines.write_text("\n".join(json.dumps({"text": word}) for word in ("three", "four")))
    return [text, lines]


def prepared(asked: Request, encoder: ByteEncoder | None = None) -> Manifest:
    return prepare(asked, encoder or ByteEncoder(), lambda _: None)


def test_all_documents_in_the_order_given_each_with_its_mark(tmp_path: Path) -> None:
    files = two_files(tmp_path)
    seen: list[Progress] = []
    manifest = prepare(request(tmp_path, *files), ByteEncoder(), seen.append)
    assert (tmp_path / "tokens" / "tokens-00000.bin").read_bytes() == b"one\ntwo\xff|three|four|"
    assert (manifest.tokens, manifest.documents, manifest.dtype) == (20, 3, "uint8")
    assert manifest.sources == tuple(SourceFile(path=str(file), size=file.stat().st_size) for file in files)
    assert seen[-1] == Progress(2, 3, 20)
    assert TokenFolder.open(str(tmp_path / "tokens")).manifest == manifest
    TokenFolder.open(str(tmp_path / "tokens")).check("full")


def test_a_large_vocabulary_takes_four_bytes_a_token(tmp_path: Path) -> None:
    class WideEncoder(ByteEncoder):
        vocabulary = 70_000

        def encode(self, texts: Sequence[bytes]) -> list[np.ndarray]:
            return [tokens.astype(np.uint32) + 69_000 for tokens in super().encode(texts)]

    manifest = prepared(request(tmp_path, *two_files(tmp_path), end_of_document=""), WideEncoder())
    stored = np.fromfile(tmp_path / "tokens" / "tokens-00000.bin", "<u4")
    assert manifest.dtype == "uint32"
    assert bytes((stored - 69_000).astype(np.uint8)) == b"one\ntwo\xffthreefour"


def test_what_was_stopped_can_be_made_again_and_what_is_finished_cannot(tmp_path: Path) -> None:
    class BreaksOnTheSecondFile(ByteEncoder):
        def encode(self, texts: Sequence[bytes]) -> list[np.ndarray]:
            if b"three" in texts:
                raise KeyboardInterrupt
            return super().encode(texts)

    asked = request(tmp_path, *two_files(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        prepared(asked, BreaksOnTheSecondFile())
    assert (tmp_path / "tokens" / "tokens-00000.bin").stat().st_size
    with pytest.raises(DataFault, match="expected a finished token folder, got no manifest.json; make it with"):
        TokenFolder.open(asked.output).check("sample")
    assert prepared(asked).tokens == 20
    TokenFolder.open(asked.output).check("full")
    with pytest.raises(DataFault, match="is already a token folder, which a run may be reading; choose another"):
        prepared(asked)


def test_a_missing_input_is_reported_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(DataFault, match="expected files, got .*/nothing"):
        prepared(request(tmp_path, *two_files(tmp_path), tmp_path / "nothing"))
    assert not (tmp_path / "tokens").exists()


@pytest.mark.costs(cpu_seconds=15)
def test_an_input_that_cannot_be_used_ends_all_processes(tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text("{}")
    asked = replace(request(tmp_path, *two_files(tmp_path), broken), processes=2, file_bytes=1)
    with pytest.raises(DataFault, match="broken.jsonl line 1: expected an object with text"):
        prepared(asked)
    assert not (tmp_path / "tokens" / "manifest.json").exists()


def conversations(tmp_path: Path, sequence_length: int, times: int = 1) -> Request:
    """Write a folder in the layout of the Hugging Face hub, with one file for each split, and ask for one split."""
    folder = tmp_path / "hub" / "data"
    folder.mkdir(parents=True)
    questions = [("1+1=", "2"), ("who?", "nobody at all"), ("hi", "ho")]
    lines = [json.dumps({"prompt": prompt, "completion": completion}) for prompt, completion in questions]
    (folder / "train-00000.jsonl").write_text("\n".join(lines))
    (folder / "test-00000.jsonl").write_text(lines[0])
    files = data_files(str(folder.parent), "train") * times
    fields = Turns(("prompt", "completion"), "{content}", begin="")
    return Request(tuple(files), str(tmp_path / "tokens"), fields, "|", sequence_length=sequence_length)


def test_conversations_are_whole_in_rows_and_their_prompts_are_marked(tmp_path: Path) -> None:
    asked = conversations(tmp_path, sequence_length=11)
    manifest = prepared(asked)
    assert manifest.packed == PackedRows(sequence_length=11, padding=1, cut=1)
    assert (manifest.documents, manifest.dtype, manifest.tokens) == (3, "uint16", 24)
    folder = TokenFolder.open(asked.output)
    folder.check("full")
    # The second conversation fills a row and loses its end, so its row is full first.
    stored = folder.rows(12)[[0, 1]]
    assert [bytes(row) for row in (stored >> 1).astype(np.uint8)] == [b"who?nobody a", b"1+1=2|hiho|\0"]
    assert ["".join(map(str, row)) for row in stored & 1] == ["111100000000", "111100110001"]
    with pytest.raises(DataFault, match="expected training.sequence_length 11, .*, got 5; set it, or prepare"):
        folder.rows(6)


@pytest.mark.costs(cpu_seconds=15)
def test_several_processes_pack_what_one_packs(tmp_path: Path) -> None:
    asked = replace(conversations(tmp_path, sequence_length=7, times=2), file_bytes=1)
    seen: list[Progress] = []
    one = prepared(asked)
    two = prepare(replace(asked, output=str(tmp_path / "2"), processes=2), ByteEncoder(), seen.append)
    assert one == two
    assert len(one.files) == 2
    assert all(file.tokens % 8 == 0 for file in one.files)
    assert (seen[-1].files, seen[-1].documents) == (2, 6)


def test_the_input_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    text = tmp_path / "long.txt"
    text.write_bytes(b"a line of text\n" * (64 << 16))
    tracemalloc.start()
    prepared(request(tmp_path, text))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < text.stat().st_size / 3
