"""Token rows on local disk, and which rows make up which batch.

Owns the corpus file, the split into training and held-out rows, and the order: a pure function of seed
and step, so that neither a restart nor another number of hosts changes what is trained on.
"""

import hashlib
import json
import os
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grain
import jax
import numpy as np
from jax.sharding import NamedSharding

from workloads.spec import DataSpec, TrainingSpec
from workloads.training.failures import InvalidSpec
from workloads.training.runtime import Processes

BYTE_VALUES = 256
"""Vocabulary of the byte-level source."""


@dataclass(frozen=True)
class Rows:
    """Rows of `sequence_length + 1` tokens, mapped from a local file; the last ones are held out."""

    tokens: np.ndarray
    training_count: int
    digest: str
    """SHA-256 of all rows."""


def cache_folder() -> Path:
    """Where this user's corpus files lie between runs on this machine."""
    return Path(tempfile.gettempdir()) / f"tpu-multislice-{os.getuid()}"


def load_rows(spec: DataSpec, sequence_length: int, cache: Path) -> Rows:
    """The rows of `spec`, built into `cache` first if they are not there.

    Raises:
        InvalidSpec: the source is too small to hold a training row and a held-out row.
    """
    path = cache / f"{_cache_key(spec, sequence_length)}.tokens"
    if not path.exists():
        _write_rows(path, _standard_library(spec.max_bytes), sequence_length + 1)
    tokens = np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, sequence_length + 1)
    held_out = int(len(tokens) * spec.held_out_fraction)
    return Rows(tokens, len(tokens) - held_out, hashlib.sha256(tokens).hexdigest())


def require_same_rows(rows: Rows, processes: Processes) -> None:
    """Refuse to train when hosts hold different data, which would silently train on a mixture.

    Raises:
        InvalidSpec: the digests differ; the message names the hosts that differ from the leader.
    """
    found = [json.loads(word) for word in processes.gather("rows", json.dumps([processes.host, rows.digest]))]
    expected = found[0][1]
    different = [f"{host} ({digest[:12]})" for host, digest in found if digest != expected]
    if different:
        raise InvalidSpec(
            f"data: every host must hold the rows {expected[:12]} of {found[0][0]}, but {', '.join(different)}"
            " differ; run the same image on all hosts"
        )


class Batches:
    """Global batches by number; each process reads only the rows of its own devices."""

    def __init__(self, rows: Rows, spec: TrainingSpec, sharding: NamedSharding):
        held_out = len(rows.tokens) - rows.training_count
        if held_out < spec.evaluation_batches * spec.global_batch or rows.training_count < spec.global_batch:
            raise InvalidSpec(
                f"data: {spec.evaluation_batches} evaluation batches of {spec.global_batch} sequences need"
                f" {spec.evaluation_batches * spec.global_batch} held-out rows, got {held_out}"
                f" beside {rows.training_count} training rows; raise data.max_bytes or data.held_out_fraction"
            )
        self._rows = rows
        self._size = spec.global_batch
        self._sharding = sharding
        self._order: Any = grain.MapDataset.range(rows.training_count).shuffle(seed=spec.seed).repeat()

    def training(self, step: int) -> jax.Array:
        """The batch that takes the model from `step` to `step + 1`."""
        return self._place(lambda place: self._order[step * self._size + place])

    def held_out(self, number: int) -> jax.Array:
        """Evaluation batch `number`, from 0; always the same rows."""
        return self._place(lambda place: self._rows.training_count + number * self._size + place)

    def _place(self, row_at: Callable[[int], int]) -> jax.Array:
        def shard(index: Any) -> np.ndarray:
            return self._rows.tokens[[row_at(place) for place in range(*index[0].indices(self._size))]]

        return jax.make_array_from_callback((self._size, self._rows.tokens.shape[1]), self._sharding, shard)


def _cache_key(spec: DataSpec, sequence_length: int) -> str:
    parts = (spec.source, spec.max_bytes, sequence_length, sysconfig.get_path("stdlib"), sys.version)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def _standard_library(max_bytes: int) -> bytes:
    text = bytearray()
    for path in _sources(Path(sysconfig.get_path("stdlib"))):
        text += path.read_bytes()
        if len(text) >= max_bytes:
            break
    return bytes(text[:max_bytes])


def _sources(folder: Path) -> Iterator[Path]:
    """All modules of the standard library in one order on every machine; installed packages are left out."""
    for path in sorted(folder.rglob("*.py"), key=lambda path: path.relative_to(folder).as_posix()):
        if not {"site-packages", "dist-packages"} & set(path.parts):
            yield path


def _write_rows(path: Path, text: bytes, row_length: int) -> None:
    count = len(text) // row_length
    if count < 2:
        raise InvalidSpec(f"data: {len(text)} bytes do not fill two rows of {row_length}; raise data.max_bytes")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as unfinished:
        unfinished.write(text[: count * row_length])
    # Several hosts of one machine may build at once: each renames a whole file over the same bytes.
    os.replace(unfinished.name, path)
