"""A token folder: its layout, its manifest, rows for the trainer, hashes for the checks.

    tokens-00000.bin ...  all tokens as one stream, little-endian, no header, cut into files between documents
    manifest.json         Manifest; written last, so a folder without it is not finished

A row may begin in one file and end in the next, so the number of files changes neither rows nor their order. The
trainer cuts the stream into rows of its sequence length. Only conversations have fixed rows; see `packing`.

Local files are mapped into memory and others are read by ranges, so a host holds only the rows that it reads.
"""

import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from mmap import ACCESS_READ, mmap
from operator import not_
from typing import Annotated, Any, Literal, Protocol, Self

import numpy as np
from fsspec.asyn import AsyncFileSystem
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem
from pydantic import Field, ValidationError, model_validator

from workloads.data.packing import PackedRows
from workloads.spec import Spec

MANIFEST = "manifest.json"

type TokenType = Literal["uint8", "uint16", "uint32"]


class DataFault(ValueError):
    """Raised for text or tokens that cannot be used. The message has the file, the reason and what to do."""


class Tokenizer(Spec):
    """The tokenizer of a folder."""

    name: str
    """Name of the tokenizer: `bytes`, or that of a `tokenizer.json`."""
    sha256: str | None
    """Hash of that file. `None` for `bytes`."""


class SourceFile(Spec):
    """A file that the tokens come from."""

    path: str
    size: int
    """Size in bytes as stored, which may be compressed."""


class TokenFile(Spec):
    """A file with tokens."""

    name: str
    tokens: Annotated[int, Field(ge=0)]
    sha256: str


class Manifest(Spec):
    """The content of `manifest.json`."""

    format_version: Literal[2]
    files: tuple[TokenFile, ...]
    """Files in the order of the stream."""
    sample_sha256: str
    """Hash of sampled spans of the stream; see `TokenFolder.sample`."""
    documents: int
    dtype: TokenType
    vocabulary: Annotated[int, Field(gt=0)]
    """Limit of the tokens. Every token is below it."""
    tokenizer: Tokenizer
    end_of_document: str
    """Text whose tokens are added after each document."""
    sources: tuple[SourceFile, ...]
    packed: Annotated[PackedRows | None, Field(exclude_if=not_)] = None
    """Facts of packed conversations, whose tokens have marks of prompts. `None` for a stream, which can be cut at any
    sequence length and is learned as a whole."""

    @model_validator(mode="before")
    @classmethod
    def _from_format_1(cls, written: Any) -> Any:
        """Convert the first format, whose single file had no separate entry."""
        if not isinstance(written, dict) or written.get("format_version") != 1:
            return written
        file = {"name": "tokens.bin", **{key: written[key] for key in ("tokens", "sha256") if key in written}}
        rest = {key: value for key, value in written.items() if key not in file}
        return {**rest, "format_version": 2, "files": [file]}

    @property
    def tokens(self) -> int:
        return sum(file.tokens for file in self.files)

    @property
    def sha256(self) -> str:
        """Hash of the only file, or of the hashes of all files."""
        hashes = [file.sha256 for file in self.files]
        return hashes[0] if len(hashes) == 1 else hashlib.sha256(json.dumps(hashes).encode()).hexdigest()

    @property
    def bytes(self) -> int:
        return self.tokens * self.token_bytes

    @property
    def token_bytes(self) -> int:
        return stored_type(self.dtype).itemsize


def token_type(vocabulary: int, marked: bool = False) -> TokenType:
    """Return the smallest type for tokens below `vocabulary`, or below twice as much with `marked`."""
    numbers = 2 * vocabulary if marked else vocabulary
    if numbers <= 1 << 8:
        return "uint8"
    return "uint16" if numbers <= 1 << 16 else "uint32"


def stored_type(dtype: TokenType) -> np.dtype:
    """Return `dtype` in the byte order of the file."""
    return np.dtype(dtype).newbyteorder("<")


def read_manifest(folder: str) -> Manifest:
    """Return the manifest of `folder`, a local path or a URL such as `gs://BUCKET/FOLDER`.

    Raises:
        DataFault: there is no manifest, or it has another format.
    """
    fs, path = url_to_fs(folder)
    try:
        return Manifest.model_validate_json(fs.cat_file(f"{path}/{MANIFEST}"))
    except FileNotFoundError:
        raise DataFault(
            f"{folder}: expected a finished token folder, got no {MANIFEST};"
            f" make it with python -m workloads.data prepare --output {folder}"
        ) from None
    except ValidationError as fault:
        raise DataFault(
            f"{folder}/{MANIFEST} is not a manifest of format 1 or 2; prepare the folder again ({fault})"
        ) from None


SAMPLE_SPANS, SAMPLE_BYTES = 64, 4096
"""Number and size of the spans of the sampled hash. They include the first and the last bytes."""

_HASHED_AT_ONCE_BYTES = 16 << 20

_READ_TIMEOUT_SECONDS = 30.0
"""Time limit of reading a range from object storage. Its connection may hang, and a new one is quicker."""


class RowReader(Protocol):
    """Returns rows of tokens by their numbers, like a two-dimensional array."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, rows: list[int], /) -> np.ndarray: ...


@dataclass(frozen=True)
class TokenFolder:
    """One folder, a local path or a URL such as `gs://BUCKET/FOLDER`."""

    folder: str
    manifest: Manifest
    _maps: dict[str, mmap] = field(default_factory=dict[str, mmap], init=False, repr=False, compare=False)

    @classmethod
    def open(cls, folder: str) -> Self:
        """Open a folder. Raise DataFault as `read_manifest` does."""
        return cls(folder, read_manifest(folder))

    def rows(self, length: int) -> RowReader:
        """Return all whole rows of `length` tokens.

        Raises:
            DataFault: there is no whole row, or conversations were packed for another length.
        """
        packed = self.manifest.packed
        if packed and packed.sequence_length != length - 1:
            raise DataFault(
                f"{self.folder}: expected training.sequence_length {packed.sequence_length}, which its conversations"
                f" were packed for, got {length - 1}; set it, or prepare them again with another --sequence-length"
            )
        count = self.manifest.tokens // length
        if not count:
            raise DataFault(f"{self.folder}: expected at least a row of {length} tokens, got {self.manifest.tokens}")
        return _Rows(self, (count, length), stored_type(self.manifest.dtype))

    def check(self, content: Literal["sample", "full"]) -> None:
        """Compare the folder with its manifest: the sizes, then the sampled hash or all hashes.

        Raises:
            DataFault: they differ. The message names all files that do.
        """
        fs, folder = self._place
        listed = fs.ls(folder, detail=True, refresh=True)
        sizes = {entry["name"].rpartition("/")[2]: entry["size"] for entry in listed}
        expected = {file.name: file.tokens * self.manifest.token_bytes for file in self.manifest.files}
        faults = [
            f"{self.folder}/{name}: expected {size} bytes, got {sizes.get(name, 'no such file')}"
            for name, size in expected.items()
            if sizes.get(name) != size
        ]
        if faults := faults or [*self._changes(content)]:
            raise DataFault(f"{'; '.join(faults)}; copy the folder again or prepare it again")

    def sample(self) -> str:
        """Return the SHA-256 of spans spread evenly over the stream, which takes one round of small reads at any size.

        It detects another stream of the same size and long gaps, but hardly ever a single flipped bit.
        """
        size = self.manifest.bytes
        starts = sorted({int(start) for start in np.linspace(0, max(size - SAMPLE_BYTES, 0), SAMPLE_SPANS)})
        spans = self.read([(start, min(start + SAMPLE_BYTES, size)) for start in starts])
        return hashlib.sha256(b"".join(spans)).hexdigest()

    def read(self, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of each span (start, end) of the stream. Object storage is read in parallel.

        Raises:
            OSError: a file is shorter than its manifest says.
        """
        parts = [[*self._parts(start, end)] for start, end in spans]
        found = iter(self._read_parts([part for of_span in parts for part in of_span]))
        together = [b"".join(next(found) for _ in of_span) for of_span in parts]
        for (start, end), content in zip(spans, together, strict=True):
            if len(content) != end - start:
                raise OSError(f"{self.folder}: expected {end - start} bytes from {start} on, got {len(content)}")
        return together

    def _parts(self, start: int, end: int) -> Iterator[tuple[str, int, int]]:
        """Yield path, start and end of the bytes in each file that a span of the stream touches."""
        number = bisect_right(self._ends, start)
        while start < end:
            first = self._ends[number - 1] if number else 0
            stop = min(end, self._ends[number])
            if start < stop:
                yield self.manifest.files[number].name, start - first, stop - first
            start, number = stop, number + 1

    def _read_parts(self, parts: Sequence[tuple[str, int, int]]) -> list[bytes]:
        fs, folder = self._place
        if isinstance(fs, LocalFileSystem):
            return [self._map(f"{folder}/{name}")[start:end] for name, start, end in parts]
        limit = {"timeout": _READ_TIMEOUT_SECONDS} if isinstance(fs, AsyncFileSystem) else {}
        paths = [f"{folder}/{name}" for name, _, _ in parts]
        starts, ends = [start for _, start, _ in parts], [end for _, _, end in parts]
        return fs.cat_ranges(paths, starts, ends, on_error="raise", **limit)

    def _map(self, path: str) -> mmap:
        if path not in self._maps:
            with open(path, "rb") as file:
                # A folder may have more files than a process can keep open.
                self._maps[path] = mmap(file.fileno(), 0, access=ACCESS_READ, trackfd=False)
        return self._maps[path]

    def _changes(self, content: Literal["sample", "full"]) -> Iterator[str]:
        files = self.manifest.files
        if content == "sample":
            hashes = [(files[0].name if len(files) == 1 else "", self.manifest.sample_sha256, self.sample())]
        else:
            hashes = [(file.name, file.sha256, self._digest(file)) for file in files]
        for name, expected, got in hashes:
            if got != expected:
                yield f"{self.folder}/{name}: its content changed: expected {content} SHA-256 {expected}, got {got}"

    def _digest(self, file: TokenFile) -> str:
        fs, folder = self._place
        with fs.open(f"{folder}/{file.name}", "rb", block_size=_HASHED_AT_ONCE_BYTES) as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()

    @cached_property
    def _ends(self) -> list[int]:
        """End of each file in the stream, in bytes."""
        return [end * self.manifest.token_bytes for end in accumulate(file.tokens for file in self.manifest.files)]

    @cached_property
    def _place(self) -> tuple[Any, str]:
        return url_to_fs(self.folder.rstrip("/"))


@dataclass(frozen=True)
class _Rows:
    folder: TokenFolder
    shape: tuple[int, int]
    dtype: np.dtype

    def __getitem__(self, rows: list[int], /) -> np.ndarray:
        size = self.shape[1] * self.dtype.itemsize
        spans = self.folder.read([(row * size, (row + 1) * size) for row in rows])
        return np.frombuffer(b"".join(spans), self.dtype).reshape(len(rows), self.shape[1])
