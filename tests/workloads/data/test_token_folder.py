import hashlib
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fsspec
import numpy as np
import pytest

from workloads.data import token_folder
from workloads.data.documents import TextField
from workloads.data.encoders import ByteEncoder
from workloads.data.prepare import Request, prepare
from workloads.data.token_folder import SAMPLE_BYTES, SAMPLE_SPANS, DataFault, TokenFolder, token_type

SIZE = 3 * SAMPLE_BYTES * SAMPLE_SPANS

# A manifest of the first format, with the whole file as its sample.
FIRST_FORMAT = """{
  "format_version": 1,
  "sha256": "HASH",
  "sample_sha256": "HASH",
  "tokens": 8,
  "documents": 2,
  "dtype": "uint8",
  "vocabulary": 256,
  "tokenizer": {"name": "bytes", "sha256": null},
  "end_of_document": "|",
  "sources": [{"path": "a.txt", "size": 3}, {"path": "b.txt", "size": 3}]
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> str:
    text = tmp_path / "text"
    text.write_bytes(np.random.default_rng(0).bytes(SIZE))
    output = str(tmp_path / "tokens")
    prepare(Request((str(text),), output, TextField("text"), ""), ByteEncoder(), lambda _: None)
    return output


@pytest.fixture
def several(folder: str, tmp_path: Path) -> str:
    """Split the stream of `folder` into files. None ends at the end of a row of 1000 tokens, and one is empty."""
    stream = (Path(folder) / "tokens-00000.bin").read_bytes()
    cuts = [0, 1500, 1500, 1501, 400_001, SIZE]
    texts = [tmp_path / f"part-{number}" for number in range(len(cuts) - 1)]
    for text, start, end in zip(texts, cuts, cuts[1:], strict=False):
        text.write_bytes(stream[start:end])
    output = str(tmp_path / "several")
    request = Request(tuple(map(str, texts)), output, TextField("text"), "", file_bytes=0)
    prepare(request, ByteEncoder(), lambda _: None)
    assert len([*Path(output).iterdir()]) == 6
    return output


def change(folder: str, start: int, content: bytes) -> None:
    with (Path(folder) / "tokens-00000.bin").open("r+b") as file:
        file.seek(start)
        file.write(content)


def test_rows_are_the_stream_cut_at_the_length_asked_for(folder: str) -> None:
    rows, stream = TokenFolder.open(folder).rows(1000), np.fromfile(Path(folder) / "tokens-00000.bin", np.uint8)
    assert rows.shape == (SIZE // 1000, 1000)
    assert np.array_equal(rows[[3, 0]], stream[: SIZE // 1000 * 1000].reshape(-1, 1000)[[3, 0]])
    with pytest.raises(DataFault, match=f"expected at least a row of {SIZE + 1} tokens, got {SIZE}"):
        TokenFolder.open(folder).rows(SIZE + 1)


@pytest.mark.parametrize("files", ["folder", "several"])
def test_object_storage_gives_the_rows_of_local_files(files: str, request: pytest.FixtureRequest) -> None:
    folder: str = request.getfixturevalue(files)
    remote = fsspec.filesystem("memory")
    remote.put(folder, "/bucket/tokens", recursive=True)
    try:
        bucket = TokenFolder.open("memory://bucket/tokens/")
        bucket.check("full")
        bucket.check("sample")
        rows, local = bucket.rows(1000), TokenFolder.open(folder).rows(1000)
        numbers = [5, 0, 1, 2, 399, 400, 401, rows.shape[0] - 1, 5]
        assert np.array_equal(rows[numbers], local[numbers])
    finally:
        remote.rm("/bucket", recursive=True)


def test_the_number_of_files_changes_no_row(folder: str, several: str) -> None:
    one, many = TokenFolder.open(folder), TokenFolder.open(several)
    many.check("full")
    assert many.manifest.sample_sha256 == one.manifest.sample_sha256
    numbers = [0, 1, 2, 399, 400, 401, SIZE // 1000 - 1]
    assert np.array_equal(many.rows(1000)[numbers], one.rows(1000)[numbers])


def test_all_files_that_differ_are_named_at_once(several: str) -> None:
    (Path(several) / "tokens-00000.bin").write_bytes(bytes(3))
    (Path(several) / "tokens-00003.bin").unlink()
    with pytest.raises(DataFault) as fault:
        TokenFolder.open(several).check("sample")
    assert "tokens-00000.bin: expected 1500 bytes, got 3; " in str(fault.value)
    assert "tokens-00003.bin: expected 398500 bytes, got no such file; copy" in str(fault.value)


def test_a_folder_of_the_first_format_is_read_as_before(tmp_path: Path) -> None:
    (tmp_path / "tokens.bin").write_bytes(b"one|two|")
    written = FIRST_FORMAT.replace("HASH", hashlib.sha256(b"one|two|").hexdigest())
    (tmp_path / "manifest.json").write_text(written)
    folder = TokenFolder.open(str(tmp_path))
    folder.check("sample")
    folder.check("full")
    assert folder.manifest.sha256 == hashlib.sha256(b"one|two|").hexdigest()
    assert (folder.manifest.tokens, folder.manifest.documents) == (8, 2)
    assert folder.rows(4)[[1, 0]].tolist() == [list(b"two|"), list(b"one|")]


class Ranges(SimpleHTTPRequestHandler):
    """Serves ranges of a folder's files, but hangs if they begin at 5000."""

    hung = threading.Event()

    def do_GET(self) -> None:
        start, end = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        if start == 5000:
            self.hung.wait(60)
        content = Path(self.translate_path(self.path)).read_bytes()[start : end + 1]
        self.send_response(206)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_range_that_hangs_fails_in_time(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_folder, "_READ_TIMEOUT_SECONDS", 0.5)
    local = TokenFolder.open(folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Ranges, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        remote = TokenFolder(f"http://127.0.0.1:{server.server_port}", local.manifest).rows(1000)
        try:
            assert np.array_equal(remote[[7, 2]], local.rows(1000)[[7, 2]])
            with pytest.raises(TimeoutError):
                remote[[7, 5]]
        finally:
            Ranges.hung.set()
            server.shutdown()


def test_a_file_that_became_shorter_gives_no_row(folder: str) -> None:
    rows = TokenFolder.open(folder).rows(1000)
    with (Path(folder) / "tokens-00000.bin").open("r+b") as file:
        file.truncate(SIZE - 2000)
    with pytest.raises(OSError, match="expected 1000 bytes from .* on, got"):
        rows[[rows.shape[0] - 1]]


@pytest.mark.parametrize("start", [0, SIZE // 2, SIZE - SAMPLE_BYTES])
def test_the_sample_finds_a_lost_stretch_wherever_it_is(folder: str, start: int) -> None:
    change(folder, start, bytes(SAMPLE_BYTES))
    change(folder, max(start - 2 * SAMPLE_BYTES, 0), bytes(4 * SAMPLE_BYTES if start < SIZE - SAMPLE_BYTES else 1))
    with pytest.raises(DataFault, match="tokens-00000.bin: its content changed: expected sample SHA-256"):
        TokenFolder.open(folder).check("sample")


def test_the_full_hash_finds_one_flipped_bit(folder: str) -> None:
    # This is between two spans of the sample.
    flipped = (Path(folder) / "tokens-00000.bin").read_bytes()[SAMPLE_BYTES + 1] ^ 1
    change(folder, SAMPLE_BYTES + 1, bytes([flipped]))
    TokenFolder.open(folder).check("sample")
    with pytest.raises(DataFault, match="expected full SHA-256"):
        TokenFolder.open(folder).check("full")


def test_a_later_format_is_refused(folder: str) -> None:
    manifest = Path(folder) / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"format_version": 2', '"format_version": 3'))
    with pytest.raises(DataFault, match="manifest.json is not a manifest of format 1 or 2; prepare the folder again"):
        TokenFolder.open(folder).check("sample")


@pytest.mark.parametrize(
    ("vocabulary", "dtype"),
    [(1, "uint8"), (256, "uint8"), (257, "uint16"), (65536, "uint16"), (65537, "uint32"), (1 << 32, "uint32")],
)
def test_the_type_is_the_smallest_that_holds_every_token(vocabulary: int, dtype: str) -> None:
    assert token_type(vocabulary) == dtype
    assert vocabulary - 1 <= np.iinfo(dtype).max
