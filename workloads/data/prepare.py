"""Files of text to a token folder.

Owns the order of things: every input read once, in the order given, a few megabytes at a time; the
token file is written as it comes, and the manifest last, which is what makes the folder whole.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from fsspec.core import url_to_fs

from workloads.data.documents import Piece, read_pieces
from workloads.data.encoders import Encoder
from workloads.data.manifest import MANIFEST, TOKENS, DataFault, Manifest, SourceFile, stored_type, token_type
from workloads.data.token_file import TokenFile

_ENCODED_AT_ONCE_BYTES = 4 << 20
"""A tokenizer uses all cores on the texts of one batch."""


@dataclass(frozen=True)
class Request:
    """What to prepare, from where to where; each path local or a URL."""

    inputs: tuple[str, ...]
    output: str
    text_field: str
    """Of a JSON or parquet record."""
    end_of_document: str


@dataclass(frozen=True)
class Progress:
    """How far it is."""

    file: str
    file_number: int
    files: int
    documents: int
    tokens: int


def prepare(request: Request, encoder: Encoder, report: Callable[[Progress], None]) -> Manifest:
    """Make the token folder `request.output`.

    Raises:
        DataFault: an input cannot be used, or the folder is there already.
    """
    sources = tuple(_source(path) for path in request.inputs)
    fs, folder = url_to_fs(request.output.rstrip("/"))
    if fs.exists(f"{folder}/{MANIFEST}"):
        raise DataFault(f"{request.output} is a token folder already, which a run may be reading; name another")
    fs.makedirs(folder, exist_ok=True)
    with fs.open(f"{folder}/{TOKENS}", "wb") as file:
        written = _Tokens(file, stored_type(token_type(encoder.vocabulary)))
        for number, path in enumerate(request.inputs, 1):
            for _ in _write_file(written, path, request, encoder):
                report(Progress(path, number, len(sources), written.documents, written.count))
    manifest = Manifest(
        format_version=1,
        sha256=written.hash.hexdigest(),
        sample_sha256=TokenFile(request.output).sample(written.bytes),
        tokens=written.count,
        documents=written.documents,
        dtype=token_type(encoder.vocabulary),
        vocabulary=encoder.vocabulary,
        tokenizer=encoder.identity,
        end_of_document=request.end_of_document,
        sources=sources,
    )
    fs.pipe_file(f"{folder}/{MANIFEST}", manifest.model_dump_json(indent=2).encode() + b"\n")
    return manifest


@dataclass
class _Tokens:
    """The token file while it grows."""

    file: Any
    dtype: np.dtype
    count: int = 0
    documents: int = 0
    hash: Any = field(default_factory=hashlib.sha256)

    @property
    def bytes(self) -> int:
        return self.count * self.dtype.itemsize

    def add(self, tokens: np.ndarray) -> None:
        content = tokens.astype(self.dtype).tobytes()
        self.file.write(content)
        self.hash.update(content)
        self.count += len(tokens)


def _source(path: str) -> SourceFile:
    fs, place = url_to_fs(path)
    if not fs.isfile(place):
        raise DataFault(f"--input: expected a file, got {path}; a folder's files are named one by one")
    return SourceFile(path=path, size=fs.size(place))


def _write_file(written: _Tokens, path: str, request: Request, encoder: Encoder) -> Iterator[None]:
    """Add the tokens of one input; yields after each batch."""
    mark = encoder.encode_mark(request.end_of_document)
    for batch in _batches(read_pieces(path, request.text_field)):
        try:
            encoded = encoder.encode([piece.text for piece in batch])
        except UnicodeDecodeError as fault:
            raise DataFault(f"{path}: expected UTF-8, got {fault}; convert it or use --tokenizer bytes") from None
        for piece, tokens in zip(batch, encoded, strict=True):
            written.add(tokens)
            if piece.ends_document:
                written.add(mark)
                written.documents += 1
        yield


def _batches(pieces: Iterator[Piece]) -> Iterator[list[Piece]]:
    batch: list[Piece] = []
    size = 0
    for piece in pieces:
        batch.append(piece)
        size += len(piece.text)
        if size >= _ENCODED_AT_ONCE_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
