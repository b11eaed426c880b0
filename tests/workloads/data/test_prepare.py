import json
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from workloads.data.documents import TextField, data_files
from workloads.data.encoders import ByteEncoder
from workloads.data.manifest import DataFault, PackedRows, SourceFile
from workloads.data.prepare import Progress, Request, prepare
from workloads.data.token_folder import TokenFolder
from workloads.data.turns import Turns


def request(tmp_path: Path, *inputs: Path, end_of_document: str = "|") -> Request:
    return Request(tuple(map(str, inputs)), str(tmp_path / "tokens"), TextField("text"), end_of_document)


def two_files(tmp_path: Path) -> list[Path]:
    text, lines = tmp_path / "first.txt", tmp_path / "second.jsonl"
    text.write_bytes(b"one\ntwo\xff")
    lines.write_text("\n".join(json.dumps({"text": word}) for word in ("three", "four")))
    return [text, lines]


class WideEncoder(ByteEncoder):
    """An encoder with tokens above 255."""

    vocabulary = 70_000

    def encode(self, texts: Sequence[bytes]) -> list[np.ndarray]:
        return [tokens.astype(np.uint32) + 69_000 for tokens in super().encode(texts)]


class BreaksOnTheSecondFile(ByteEncoder):
    def encode(self, texts: Sequence[bytes]) -> list[np.ndarray]:
        if b"three" in texts:
            raise KeyboardInterrupt
        return super().encode(texts)


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
    manifest = prepare(request(tmp_path, *two_files(tmp_path), end_of_document=""), WideEncoder(), lambda _: None)
    stored = np.fromfile(tmp_path / "tokens" / "tokens-00000.bin", "<u4")
    assert manifest.dtype == "uint32"
    assert bytes((stored - 69_000).astype(np.uint8)) == b"one\ntwo\xffthreefour"


def test_what_was_stopped_is_no_token_folder_and_can_be_made_again(tmp_path: Path) -> None:
    asked = request(tmp_path, *two_files(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        prepare(asked, BreaksOnTheSecondFile(), lambda _: None)
    assert (tmp_path / "tokens" / "tokens-00000.bin").stat().st_size
    with pytest.raises(DataFault, match="expected a finished token folder, got no manifest.json; make it with"):
        TokenFolder.open(asked.output).check("sample")
    assert prepare(asked, ByteEncoder(), lambda _: None).tokens == 20
    TokenFolder.open(asked.output).check("full")


def test_a_finished_folder_is_never_written_over(tmp_path: Path) -> None:
    asked = request(tmp_path, *two_files(tmp_path))
    prepare(asked, ByteEncoder(), lambda _: None)
    with pytest.raises(DataFault, match="is already a token folder, which a run may be reading; choose another"):
        prepare(asked, ByteEncoder(), lambda _: None)


def test_a_missing_input_is_reported_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(DataFault, match="expected files, got .*/nothing"):
        prepare(request(tmp_path, *two_files(tmp_path), tmp_path / "nothing"), ByteEncoder(), lambda _: None)
    assert not (tmp_path / "tokens").exists()


@pytest.mark.costs(cpu_seconds=15)
def test_several_processes_write_what_one_writes(tmp_path: Path) -> None:
    inputs = [*two_files(tmp_path), *two_files(tmp_path)]
    requests = [
        replace(request(tmp_path, *inputs), output=str(tmp_path / f"by-{count}"), processes=count, file_bytes=20)
        for count in (1, 2)
    ]
    seen: list[Progress] = []
    one, two = (prepare(asked, ByteEncoder(), seen.append) for asked in requests)
    assert one == two
    assert [file.tokens for file in one.files] == [20, 20]
    assert one.documents == 6
    assert seen[-1] == Progress(4, 6, 40)
    assert [path.read_bytes() for path in sorted(Path(requests[0].output).iterdir())] == [
        path.read_bytes() for path in sorted(Path(requests[1].output).iterdir())
    ]


@pytest.mark.costs(cpu_seconds=15)
def test_an_input_that_cannot_be_used_ends_all_processes(tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text("{}")
    asked = replace(request(tmp_path, *two_files(tmp_path), broken), processes=2, file_bytes=1)
    with pytest.raises(DataFault, match="broken.jsonl line 1: expected an object with text"):
        prepare(asked, ByteEncoder(), lambda _: None)
    assert not (tmp_path / "tokens" / "manifest.json").exists()


QUESTIONS = [("1+1=", "2"), ("who?", "nobody at all"), ("hi", "ho")]


def conversations(folder: Path) -> Path:
    """Write a folder in the layout of the Hugging Face hub, with one file for each split."""
    (folder / "data").mkdir(parents=True)
    lines = [json.dumps({"prompt": prompt, "completion": completion}) for prompt, completion in QUESTIONS]
    (folder / "data" / "train-00000.jsonl").write_text("\n".join(lines))
    (folder / "data" / "test-00000.jsonl").write_text(lines[0])
    return folder


def test_conversations_are_whole_in_rows_and_their_prompts_are_marked(tmp_path: Path) -> None:
    files = data_files(str(conversations(tmp_path / "hub")), "train")
    fields = Turns(("prompt", "completion"), "{content}", begin="")
    asked = Request(tuple(files), str(tmp_path / "tokens"), fields, "|", sequence_length=11)
    manifest = prepare(asked, ByteEncoder(), lambda _: None)
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
    files = data_files(str(conversations(tmp_path / "hub")), "train") * 2
    fields = Turns(("prompt", "completion"), "{content}", begin="")
    asked = Request(tuple(files), str(tmp_path / "1"), fields, "|", sequence_length=7, file_bytes=1)
    one = prepare(asked, ByteEncoder(), lambda _: None)
    two = prepare(replace(asked, output=str(tmp_path / "2"), processes=2), ByteEncoder(), lambda _: None)
    assert one == two
    assert all(file.tokens % 8 == 0 for file in one.files)


def test_the_input_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    text = tmp_path / "long.txt"
    text.write_bytes(b"a line of text\n" * (64 << 16))
    tracemalloc.start()
    prepare(request(tmp_path, text), ByteEncoder(), lambda _: None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < text.stat().st_size / 3
