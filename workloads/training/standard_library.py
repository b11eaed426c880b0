"""Makes rows of bytes from the standard library of the running Python, data that every host already has.

The corpus file is built once in the cache for each Python, size and row length.
"""

import hashlib
import json
import os
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from workloads.data.manifest import DataFault


def standard_library_rows(max_bytes: int, row_length: int, cache: Path) -> np.ndarray:
    """Return rows of `row_length` bytes, mapped from a file in `cache`, which is built if it does not exist.

    Raises:
        DataFault: `max_bytes` is too small for a training row and a held-out row.
    """
    path = cache / f"{_cache_key(max_bytes, row_length)}.tokens"
    if not path.exists():
        _write_rows(path, _standard_library(max_bytes), row_length)
    return np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, row_length)


def _cache_key(max_bytes: int, row_length: int) -> str:
    parts = (max_bytes, row_length, sysconfig.get_path("stdlib"), sys.version)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def _standard_library(max_bytes: int) -> bytes:
    text = bytearray()
    for path in _sources(Path(sysconfig.get_path("stdlib"))):
        text += path.read_bytes()
        if len(text) >= max_bytes:
            break
    return bytes(text[:max_bytes])


def _sources(folder: Path) -> Iterator[Path]:
    """Yield all modules of the standard library, without installed packages, in the same order on every machine."""
    for path in sorted(folder.rglob("*.py"), key=lambda path: path.relative_to(folder).as_posix()):
        if not {"site-packages", "dist-packages"} & set(path.parts):
            yield path


def _write_rows(path: Path, text: bytes, row_length: int) -> None:
    count = len(text) // row_length
    if count < 2:
        raise DataFault(f"{len(text)} bytes do not fill two rows of {row_length}; raise data.max_bytes")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as unfinished:
        unfinished.write(text[: count * row_length])
    # Several hosts on one machine may build at the same time. Each replaces the file with one of the same bytes.
    os.replace(unfinished.name, path)
