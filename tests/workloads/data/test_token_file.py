from pathlib import Path

import fsspec
import numpy as np
import pytest

from workloads.data.encoders import ByteEncoder
from workloads.data.manifest import DataFault, token_type
from workloads.data.prepare import Request, prepare
from workloads.data.token_file import SAMPLE_BYTES, SAMPLE_SPANS, TokenFile

SIZE = 3 * SAMPLE_BYTES * SAMPLE_SPANS


@pytest.fixture
def folder(tmp_path: Path) -> str:
    text = tmp_path / "text"
    text.write_bytes(np.random.default_rng(0).bytes(SIZE))
    output = str(tmp_path / "tokens")
    prepare(Request((str(text),), output, "text", ""), ByteEncoder(), lambda _: None)
    return output


def change(folder: str, start: int, content: bytes) -> None:
    with (Path(folder) / "tokens.bin").open("r+b") as file:
        file.seek(start)
        file.write(content)


def test_rows_are_the_stream_cut_at_the_length_asked_for(folder: str) -> None:
    rows, stream = TokenFile(folder).rows(1000), np.fromfile(Path(folder) / "tokens.bin", np.uint8)
    assert rows.shape == (SIZE // 1000, 1000)
    assert np.array_equal(rows[[3, 0]], stream[: SIZE // 1000 * 1000].reshape(-1, 1000)[[3, 0]])


def test_object_storage_gives_the_rows_of_a_local_file(folder: str) -> None:
    remote = fsspec.filesystem("memory")
    remote.put(folder, "/bucket/tokens", recursive=True)
    try:
        file = TokenFile("memory://bucket/tokens/")
        file.check("full")
        file.check("sample")
        rows, local = file.rows(1000), TokenFile(folder).rows(1000)
        numbers = [5, 0, rows.shape[0] - 1, 5]
        assert not isinstance(rows, np.ndarray)
        assert np.array_equal(rows[numbers], local[numbers])
    finally:
        remote.rm("/bucket", recursive=True)


def test_a_short_file_is_named_with_both_sizes(folder: str) -> None:
    with (Path(folder) / "tokens.bin").open("r+b") as file:
        file.truncate(SIZE - 1)
    with pytest.raises(DataFault, match=rf"tokens.bin: expected {SIZE} bytes, got {SIZE - 1}; copy the folder again"):
        TokenFile(folder).check("sample")


def test_a_manifest_without_its_file_is_refused(folder: str) -> None:
    (Path(folder) / "tokens.bin").unlink()
    with pytest.raises(DataFault, match="got no such file"):
        TokenFile(folder).check("sample")


@pytest.mark.parametrize("start", [0, SIZE // 2, SIZE - SAMPLE_BYTES])
def test_the_sample_finds_a_lost_stretch_wherever_it_is(folder: str, start: int) -> None:
    change(folder, start, bytes(SAMPLE_BYTES))
    change(folder, max(start - 2 * SAMPLE_BYTES, 0), bytes(4 * SAMPLE_BYTES if start < SIZE - SAMPLE_BYTES else 1))
    with pytest.raises(DataFault, match="tokens.bin: its content changed: expected sample SHA-256"):
        TokenFile(folder).check("sample")


def test_the_full_hash_finds_one_flipped_bit(folder: str) -> None:
    # Between two spans of the sample.
    change(folder, SAMPLE_BYTES + 1, bytes([np.fromfile(Path(folder) / "tokens.bin", np.uint8)[SAMPLE_BYTES + 1] ^ 1]))
    TokenFile(folder).check("sample")
    with pytest.raises(DataFault, match="expected full SHA-256"):
        TokenFile(folder).check("full")


def test_a_later_format_is_refused(folder: str) -> None:
    manifest = Path(folder) / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"format_version": 1', '"format_version": 2'))
    with pytest.raises(DataFault, match="manifest.json is not a manifest of format 1; prepare the folder anew"):
        TokenFile(folder).check("sample")


def test_a_stream_shorter_than_a_row_is_refused(folder: str) -> None:
    with pytest.raises(DataFault, match=f"expected a row of {SIZE + 1} tokens at least, got {SIZE}"):
        TokenFile(folder).rows(SIZE + 1)


@pytest.mark.parametrize(
    ("vocabulary", "dtype"),
    [(1, "uint8"), (256, "uint8"), (257, "uint16"), (65536, "uint16"), (65537, "uint32"), (1 << 32, "uint32")],
)
def test_the_type_is_the_smallest_that_holds_every_token(vocabulary: int, dtype: str) -> None:
    assert token_type(vocabulary) == dtype
    assert vocabulary - 1 <= np.iinfo(dtype).max
