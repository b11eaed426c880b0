"""Converts files of text to a token folder.

Every input is read once, a few megabytes at a time. Consecutive inputs share a token file up to `Request.file_bytes`,
and each token file is written by one of several processes. The number of processes does not change the content. The
manifest is written last and completes the folder.
"""

import hashlib
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from fsspec.core import url_to_fs

from workloads.data.documents import Fields, Piece, read_pieces
from workloads.data.encoders import Encoder
from workloads.data.packing import PackedRows, Rows, mark
from workloads.data.token_folder import (
    MANIFEST,
    DataFault,
    Manifest,
    SourceFile,
    TokenFile,
    TokenFolder,
    TokenType,
    stored_type,
    token_type,
)

_ENCODED_AT_ONCE_BYTES = 4 << 20

FILE_BYTES = 1 << 30
"""Usual size of the inputs of one token file, as stored. A dataset of 10 TB then has about ten thousand token files,
each of them far below the limit of Cloud Storage, 5 TiB per object."""

_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Request:
    """Settings of a preparation. Each path is local or a URL."""

    inputs: tuple[str, ...]
    """Input files in the order of the stream."""
    output: str
    fields: Fields
    """Fields of a record to use."""
    end_of_document: str
    sequence_length: int | None = None
    """Tokens per sequence of packed conversations, with marks for the loss. `None` makes a stream."""
    processes: int = 1
    file_bytes: int = FILE_BYTES


@dataclass(frozen=True)
class Progress:
    """Progress of a preparation."""

    files: int
    """Number of inputs that are read to their end."""
    documents: int
    tokens: int


def prepare(request: Request, encoder: Encoder, report: Callable[[Progress], None]) -> Manifest:
    """Make the token folder `request.output`.

    Raises:
        DataFault: inputs cannot be used, or the folder already exists.
    """
    sources = _sources(request.inputs)
    fs, folder = url_to_fs(request.output.rstrip("/"))
    if fs.exists(f"{folder}/{MANIFEST}"):
        raise DataFault(f"{request.output} is already a token folder, which a run may be reading; choose another")
    fs.makedirs(folder, exist_ok=True)
    tasks = [
        _Task(f"{request.output.rstrip('/')}/tokens-{number:05}.bin", paths, request, encoder)
        for number, paths in enumerate(_groups(sources, request.file_bytes))
    ]
    written = [*_write_all(tasks, request.processes, report)]
    manifest = Manifest(
        format_version=2,
        files=tuple(one.file for one in written),
        sample_sha256="",
        documents=sum(one.documents for one in written),
        dtype=_dtype(request, encoder),
        vocabulary=encoder.vocabulary,
        tokenizer=encoder.identity,
        end_of_document=request.end_of_document,
        sources=sources,
        packed=None
        if request.sequence_length is None
        else PackedRows(
            sequence_length=request.sequence_length,
            padding=sum(one.padding for one in written),
            cut=sum(one.cut for one in written),
        ),
    )
    manifest = manifest.model_copy(update={"sample_sha256": TokenFolder(request.output, manifest).sample()})
    fs.pipe_file(f"{folder}/{MANIFEST}", manifest.model_dump_json(indent=2).encode() + b"\n")
    return manifest


def _dtype(request: Request, encoder: Encoder) -> TokenType:
    return token_type(encoder.vocabulary, marked=request.sequence_length is not None)


def _sources(paths: tuple[str, ...]) -> tuple[SourceFile, ...]:
    places = {path: url_to_fs(path) for path in paths}
    if missing := [path for path in paths if not places[path][0].isfile(places[path][1])]:
        raise DataFault(f"--input: expected files, got {', '.join(missing)}")
    return tuple(SourceFile(path=path, size=places[path][0].size(places[path][1])) for path in paths)


def _groups(sources: tuple[SourceFile, ...], size: int) -> list[tuple[str, ...]]:
    groups: list[tuple[str, ...]] = [()]
    filled = 0
    for source in sources:
        if groups[-1] and filled >= size:
            groups.append(())
            filled = 0
        groups[-1] += (source.path,)
        filled += source.size
    return groups


@dataclass(frozen=True)
class _Task:
    """One token file to write."""

    path: str
    inputs: tuple[str, ...]
    request: Request
    encoder: Encoder


@dataclass(frozen=True)
class _Written:
    """A token file and facts of its content."""

    file: TokenFile
    documents: int
    padding: int
    cut: int


def _write_all(tasks: list[_Task], processes: int, report: Callable[[Progress], None]) -> Iterator[_Written]:
    total = Progress(0, 0, 0)

    def add(done: Progress) -> None:
        nonlocal total
        total = Progress(total.files + done.files, total.documents + done.documents, total.tokens + done.tokens)
        report(total)

    if min(processes, len(tasks)) == 1:
        yield from (_write(task, add) for task in tasks)
        return
    # Processes are spawned, because in a forked process the threads of file systems would be missing.
    context = multiprocessing.get_context("spawn")
    done, stop = context.SimpleQueue(), context.Event()
    with ProcessPoolExecutor(processes, context, initializer=_begin_process, initargs=(done, stop)) as pool:
        results = [pool.submit(_write_here, task) for task in tasks]
        try:
            for result in results:
                while wait([result], _POLL_SECONDS).not_done or not done.empty():
                    while not done.empty():
                        add(done.get())
                yield result.result()
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


_channels: tuple[Any, Any]
"""In a process of the pool, the queue for its progress and the event that ends it early."""


def _begin_process(*channels: Any) -> None:
    global _channels
    _channels = channels
    # Each process has one core, but the tokenizer would use all cores.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def _write_here(task: _Task) -> _Written:
    done, stop = _channels

    def report(progress: Progress) -> None:
        if stop.is_set():
            raise DataFault("stopped because another input cannot be used")
        done.put(progress)

    return _write(task, report)


def _write(task: _Task, report: Callable[[Progress], None]) -> _Written:
    """Write a token file. `report` gets the progress since its last call."""
    fs, place = url_to_fs(task.path)
    with fs.open(place, "wb") as file:
        length = task.request.sequence_length
        rows = Rows(length + 1) if length else None
        written = _Tokens(file, stored_type(_dtype(task.request, task.encoder)), rows)
        for path in task.inputs:
            for documents, tokens in _write_input(written, path, task.request, task.encoder):
                report(Progress(0, documents, tokens))
            report(Progress(1, 0, 0))
        written.end()
    name = task.path.rpartition("/")[2]
    file = TokenFile(name=name, tokens=written.count, sha256=written.hash.hexdigest())
    return _Written(file, written.documents, rows.padding if rows else 0, rows.cut if rows else 0)


@dataclass
class _Tokens:
    """A token file that is being written."""

    file: Any
    dtype: np.dtype
    rows: Rows | None
    count: int = 0
    documents: int = 0
    hash: Any = field(default_factory=hashlib.sha256)
    _conversation: list[np.ndarray] = field(default_factory=list[np.ndarray])

    def add(self, tokens: np.ndarray, learned: bool) -> None:
        if self.rows:
            self._conversation.append(mark(tokens, learned))
        else:
            self._write(tokens)

    def end_document(self) -> None:
        self.documents += 1
        if self.rows:
            for row in self.rows.add(self._conversation):
                self._write(row)
            self._conversation = []

    def end(self) -> None:
        for row in self.rows.rest() if self.rows else ():
            self._write(row)

    def _write(self, tokens: np.ndarray) -> None:
        content = tokens.astype(self.dtype).tobytes()
        self.file.write(content)
        self.hash.update(content)
        self.count += len(tokens)


def _write_input(written: _Tokens, path: str, request: Request, encoder: Encoder) -> Iterator[tuple[int, int]]:
    """Add the tokens of one input. After each batch, yield the number of documents that ended in it, and its tokens."""
    mark = encoder.encode_mark(request.end_of_document)
    special = cache(encoder.encode_mark)
    for batch in _batches(read_pieces(path, request.fields)):
        try:
            plain = iter(encoder.encode([piece.text for piece in batch if not piece.special]))
        except UnicodeDecodeError as fault:
            raise DataFault(f"{path}: expected UTF-8, got {fault}; convert it or use --tokenizer bytes") from None
        documents, tokens_before = written.documents, written.count
        for piece in batch:
            written.add(special(piece.text.decode()) if piece.special else next(plain), piece.learned)
            if piece.ends_document:
                written.add(mark, piece.learned)
                written.end_document()
        yield written.documents - documents, written.count - tokens_before


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
