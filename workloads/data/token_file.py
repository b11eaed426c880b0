"""Reading `tokens.bin`: rows for the trainer, hashes for the checks.

Owns how bytes come from storage: a local file is mapped into memory, any other is read by ranges, so a
host holds no more of it than the rows it asks for. What a row is decides the reader's caller.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from workloads.data.manifest import TOKENS, DataFault, Manifest, read_manifest, stored_type

SAMPLE_SPANS, SAMPLE_BYTES = 64, 4096
"""The sampled hash reads this many spans of this size, the first and the last bytes among them."""

_HASHED_AT_ONCE_BYTES = 16 << 20


class RowReader(Protocol):
    """Rows of tokens by number, such as a two-dimensional array."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, rows: list[int], /) -> np.ndarray: ...


@dataclass(frozen=True)
class TokenFile:
    """`tokens.bin` of one folder, a local path or a URL such as `gs://BUCKET/FOLDER`."""

    folder: str

    @cached_property
    def manifest(self) -> Manifest:
        """Raises DataFault when the folder is not a finished one."""
        return read_manifest(self.folder)

    def rows(self, length: int) -> RowReader:
        """All whole rows of `length` tokens.

        Raises:
            DataFault: there is not one.
        """
        count, dtype = self.manifest.tokens // length, stored_type(self.manifest.dtype)
        if not count:
            raise DataFault(f"{self.folder}: expected a row of {length} tokens at least, got {self.manifest.tokens}")
        if not isinstance(self._place[0], LocalFileSystem):
            return _RangeRows(self, (count, length), dtype)
        return np.memmap(self._place[1], dtype, mode="r", shape=(count, length))

    def check(self, content: Literal["sample", "full"]) -> None:
        """Compare with the manifest: the size, then the sampled or the whole hash.

        Raises:
            DataFault: they differ; the message names the file.
        """
        repair = "copy the folder again or prepare it anew"
        size = self._size()
        if size is None or size != self.manifest.bytes:
            got = "no such file" if size is None else f"{size}"
            raise DataFault(f"{self.folder}/{TOKENS}: expected {self.manifest.bytes} bytes, got {got}; {repair}")
        if content == "sample":
            expected, got = self.manifest.sample_sha256, self.sample(size)
        else:
            expected, got = self.manifest.sha256, self.digest()
        if got != expected:
            raise DataFault(
                f"{self.folder}/{TOKENS}: its content changed: expected {content} SHA-256 {expected},"
                f" got {got}; {repair}"
            )

    def sample(self, size: int) -> str:
        """SHA-256 of spans spread evenly over `size` bytes: one round of small reads for any size.

        It finds another file of the same size and long gaps, but hardly ever a single flipped bit.
        """
        starts = sorted({int(start) for start in np.linspace(0, max(size - SAMPLE_BYTES, 0), SAMPLE_SPANS)})
        spans = self.read([(start, min(start + SAMPLE_BYTES, size)) for start in starts])
        return hashlib.sha256(b"".join(spans)).hexdigest()

    def digest(self) -> str:
        """SHA-256 of the whole file, which is read from end to end."""
        fs, path = self._place
        whole = hashlib.sha256()
        with fs.open(path, "rb") as file:
            while block := file.read(_HASHED_AT_ONCE_BYTES):
                whole.update(block)
        return whole.hexdigest()

    def read(self, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of each span (start, end); from object storage at once, not one after the other."""
        fs, path = self._place
        starts, ends = [start for start, _ in spans], [end for _, end in spans]
        return fs.cat_ranges([path] * len(spans), starts, ends, on_error="raise")

    def _size(self) -> int | None:
        fs, path = self._place
        return fs.size(path) if fs.exists(path) else None

    @cached_property
    def _place(self) -> tuple[Any, str]:
        return url_to_fs(f"{self.folder.rstrip('/')}/{TOKENS}")


@dataclass(frozen=True)
class _RangeRows:
    file: TokenFile
    shape: tuple[int, int]
    dtype: np.dtype

    def __getitem__(self, rows: list[int], /) -> np.ndarray:
        size = self.shape[1] * self.dtype.itemsize
        spans = self.file.read([(row * size, (row + 1) * size) for row in rows])
        return np.frombuffer(b"".join(spans), self.dtype).reshape(len(rows), self.shape[1])
