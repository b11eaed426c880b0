"""Which rows make up which batch, and which of them this host reads.

Owns the split into training and held-out rows, and the order: a pure function of seed and number, so that
neither a restart nor another number of hosts changes what is trained on. The rows themselves come from
`standard_library` or a token folder (`workloads.data`).
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import grain
import jax
import numpy as np
from jax.sharding import NamedSharding

from workloads.data.encoders import BYTE_VALUES
from workloads.data.manifest import DataFault, TokenType, token_type
from workloads.data.token_file import RowReader, TokenFile
from workloads.spec import DataSpec, StandardLibrarySpec, TrainingSpec
from workloads.training.failures import InvalidSpec
from workloads.training.layout import Split
from workloads.training.runtime import Processes
from workloads.training.standard_library import standard_library_rows


@dataclass(frozen=True)
class Rows:
    """Rows of `sequence_length + 1` tokens; the last ones are held out."""

    tokens: RowReader
    dtype: TokenType
    """What the model's vocabulary needs; the reader's own may be smaller."""
    training_count: int
    digest: str
    """SHA-256 of the rows and of how they are split: what must not change while a run goes on."""

    @property
    def row_length(self) -> int:
        return self.tokens.shape[1]

    def read(self, numbers: list[int]) -> np.ndarray:
        """The rows of these numbers."""
        return self.tokens[numbers].astype(self.dtype)


def cache_folder() -> Path:
    """Where this user's corpus files lie between runs on this machine."""
    return Path(tempfile.gettempdir()) / f"tpu-multislice-{os.getuid()}"


def load_rows(spec: DataSpec, vocab_size: int, sequence_length: int, cache: Path) -> Rows:
    """The rows of `spec` for a model of `vocab_size`; what must be built first is kept in `cache`.

    Raises:
        InvalidSpec: the source is damaged, too small, or of tokens that the model does not know.
    """
    try:
        tokens, vocabulary, digest = _source(spec, sequence_length + 1, cache)
    except DataFault as fault:
        raise InvalidSpec(f"data: {fault}") from None
    if vocabulary > vocab_size:
        raise InvalidSpec(f"model.vocab_size must be at least the {vocabulary} of the data's tokens, got {vocab_size}")
    count = tokens.shape[0]
    training_count = count - int(count * spec.held_out_fraction)
    split = json.dumps([digest, sequence_length, training_count])
    return Rows(tokens, token_type(vocab_size), training_count, hashlib.sha256(split.encode()).hexdigest())


def _source(spec: DataSpec, row_length: int, cache: Path) -> tuple[RowReader, int, str]:
    """Its rows, its vocabulary, and the hash of its tokens."""
    if isinstance(spec, StandardLibrarySpec):
        tokens = standard_library_rows(spec.max_bytes, row_length, cache)
        return tokens, BYTE_VALUES, hashlib.sha256(tokens).hexdigest()
    file = TokenFile(spec.path)
    file.check(spec.check)
    return file.rows(row_length), file.manifest.vocabulary, file.manifest.sha256


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
            " differ; run the same image on the same data on all hosts"
        )


@dataclass(frozen=True)
class Order:
    """The one order of training rows that all hosts follow, whatever their number.

    Each epoch is a permutation of all rows of its own, and epoch follows epoch without a gap: batch
    `number` is the rows [number * batch, (number + 1) * batch) of that endless sequence. Where an epoch is no
    multiple of the batch, one batch takes the last rows of an epoch and the first of the next; none is
    dropped or padded.
    """

    rows: int
    batch: int
    seed: int

    def training(self, number: int, places: Iterable[int]) -> list[int]:
        """Rows at `places` of batch `number`, from 0."""
        return [self._endless[number * self.batch + place] for place in places]

    @cached_property
    def _endless(self) -> Any:
        # Computes each place from its number: no list of rows is ever made.
        return grain.MapDataset.range(self.rows).shuffle(seed=self.seed).repeat()


class Batches:
    """Global batches by number; each process reads only the rows of its own devices."""

    def __init__(self, rows: Rows, spec: TrainingSpec, sharding: NamedSharding):
        held_out = rows.tokens.shape[0] - rows.training_count
        if held_out < spec.evaluation_batches * spec.global_batch:
            raise InvalidSpec(
                f"data: {spec.evaluation_batches} evaluation batches of {spec.global_batch} sequences need"
                f" {spec.evaluation_batches * spec.global_batch} held-out rows, got {held_out}"
                f" beside {rows.training_count} training rows; take more text or raise data.held_out_fraction"
            )
        if rows.training_count < spec.global_batch:
            raise InvalidSpec(
                f"data: batches of {spec.global_batch} sequences need {spec.global_batch} training rows,"
                f" got {rows.training_count}; use more text, lower data.held_out_fraction or training.global_batch"
            )
        self._rows = rows
        shards = prod(sharding.mesh.shape[axis] for axis in Split(sharding.spec).axes)
        self._batch = spec.global_batch
        self._shape = (spec.batch_rows(shards), rows.row_length)
        self._sharding = sharding
        self._places = [place for place in _own_places(sharding, self._shape) if place < self._batch]
        self._order = Order(rows.training_count, spec.global_batch, spec.seed)
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rows")
        self._ahead: dict[int, Future[np.ndarray]] = {}

    def training(self, number: int) -> jax.Array:
        """Training batch `number`, from 0; begins to read the one after it."""
        here = self._ahead.pop(number, None) or self._read_ahead(number)
        self._ahead = {number + 1: self._read_ahead(number + 1)}
        return self._place(here.result())

    def held_out(self, number: int) -> jax.Array:
        """Evaluation batch `number`, from 0; always the same rows."""
        first = self._rows.training_count + number * self._batch
        return self._place(self._rows.read([first + place for place in self._places]))

    def _read_ahead(self, number: int) -> Future[np.ndarray]:
        return self._reader.submit(lambda: self._rows.read(self._order.training(number, self._places)))

    def _place(self, own: np.ndarray) -> jax.Array:
        """The global array of which this process holds the rows `own`, one for each of its places. Behind the global
        batch its rows are padding, of zeros."""
        index = {place: number for number, place in enumerate(self._places)}
        padding = len(own)
        own = np.concatenate([own, np.zeros_like(own, shape=(1, own.shape[1]))])

        def shard(wanted: Any) -> np.ndarray:
            return own[[index.get(place, padding) for place in range(*wanted[0].indices(self._shape[0]))]]

        return jax.make_array_from_callback(self._shape, self._sharding, shard)


def _own_places(sharding: NamedSharding, shape: tuple[int, int]) -> list[int]:
    """Places in the global batch whose rows this process's devices hold."""
    slices = sharding.addressable_devices_indices_map(shape).values()
    return sorted({place for index in slices if index for place in range(*index[0].indices(shape[0]))})
