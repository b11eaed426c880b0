"""Determines the rows of each batch, and reads this host's rows ahead of the steps that need them.

The order is a pure function of seed and number, so that neither a restart nor another number of hosts changes the
training data. Rows are opened in `rows`.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, NamedTuple, Self

import grain
import jax
import numpy as np
from jax.sharding import NamedSharding

from workloads.spec import TrainingSpec
from workloads.training.failures import InvalidSpec
from workloads.training.layout import Split
from workloads.training.read_ahead import ReadAhead
from workloads.training.rows import Rows
from workloads.training.runs import DataRecord
from workloads.training.runtime import Processes

AHEAD_BATCHES = 32
"""Number of batches that a host reads ahead, each of training rows and of held-out rows, to bridge slow storage."""

AHEAD_BYTES = 256 << 20
"""Memory limit of each of them. Fewer batches are read ahead if they are larger."""

READING_THREADS = 8
"""Number of batches that a host reads at the same time."""

PATIENCE = 0.9
"""Share of a step's time limit that a host waits for its rows, so that it reports them before it counts as hung."""

DIGEST_ROWS = 256
"""Number of rows of each of two epochs that identify an order."""

SEEDS_OF_A_PART = 1 << 24
"""Number of seeds for epochs of a dataset, after which the seeds of the next dataset begin."""


def require_same_rows(rows: Rows, processes: Processes) -> None:
    """Check that all hosts have the same data. Otherwise they would silently train on a mixture.

    Raises:
        InvalidSpec: the digests differ. The message names the hosts that differ from the leader.
    """
    found = processes.gather("rows", (processes.host, rows.digest))
    expected = found[0][1]
    different = [f"{host} ({digest[:12]})" for host, digest in found if digest != expected]
    if different:
        raise InvalidSpec(
            f"data: every host must have the rows {expected[:12]} of {found[0][0]}, but {', '.join(different)}"
            " differ; run the same image on the same data on all hosts"
        )


class Part(NamedTuple):
    """Consecutive rows that are mixed with those of other parts."""

    first: int
    rows: int
    weight: int


@dataclass(frozen=True)
class Order:
    """The order of training rows on all hosts, whatever their number.

    Each part is an endless sequence of epochs without gaps, and each epoch is a different permutation of all the part's
    rows. The parts are mixed into one endless sequence (see `find_element`), and batch `number` has its rows
    [number * batch, (number + 1) * batch). If an epoch is not a multiple of the batch, one batch takes the last rows of
    an epoch and the first rows of the next. No rows are dropped or padded.
    """

    parts: tuple[Part, ...]
    batch: int
    seed: int

    @classmethod
    def of(cls, rows: Rows, batch: int, seed: int) -> Self:
        each = zip(rows.firsts, rows.datasets, strict=True)
        return cls(tuple(Part(first, one.training_count, one.weight) for first, one in each), batch, seed)

    def training(self, number: int, places: Iterable[int]) -> list[int]:
        """Return the rows at `places` of batch `number`, from 0."""
        return [self._row(number * self.batch + place) for place in places]

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the first rows of two epochs, which identifies the shuffle of any library version."""
        rows = sum(part.rows for part in self.parts)
        places = [*range(DIGEST_ROWS), *range(rows, rows + DIGEST_ROWS)]
        return hashlib.sha256(json.dumps([self._row(place) for place in places]).encode()).hexdigest()

    def _row(self, place: int) -> int:
        number, within = find_element(place, [part.weight for part in self.parts])
        return self.parts[number].first + self._endless[number][within]

    @cached_property
    def _endless(self) -> list[Any]:
        # Each place is computed from its number, without a list of rows.
        return [
            grain.MapDataset.range(part.rows).shuffle(seed=(self.seed + number * SEEDS_OF_A_PART) % 2**32).repeat()
            for number, part in enumerate(self.parts)
        ]


def find_element(place: int, weights: Sequence[int]) -> tuple[int, int]:
    """Return the sequence of the element at `place` of a mixture, and its place in that sequence.

    Of any n consecutive elements, a share of weight / sum(weights) is from each sequence, with a difference of fewer
    than log2(len(weights)) elements, rounded up. The weights are repeatedly split in two halves, and each split is
    exact to one element.
    """
    if len(weights) == 1:
        return 0, place
    middle = len(weights) // 2
    before, through = (_first_half(count, weights) for count in (place, place + 1))
    if through > before:
        return find_element(before, weights[:middle])
    number, within = find_element(place - before, weights[middle:])
    return middle + number, within


def shares(count: int, weights: Sequence[int]) -> list[int]:
    """Return how many of the first `count` elements of a mixture are from each sequence."""
    if len(weights) == 1:
        return [count]
    middle, first = len(weights) // 2, _first_half(count, weights)
    return [*shares(first, weights[:middle]), *shares(count - first, weights[middle:])]


def _first_half(count: int, weights: Sequence[int]) -> int:
    return count * sum(weights[: len(weights) // 2]) // sum(weights)


class Batches:
    """Global batches by number. Each process reads only the rows of its own devices.

    It is a context manager that ends all reads.
    """

    def __init__(self, rows: Rows, spec: TrainingSpec, sharding: NamedSharding):
        _require_enough(rows, spec)
        self._order = Order.of(rows, spec.global_batch, spec.seed)
        self._rows = rows
        shards = prod(sharding.mesh.shape[axis] for axis in Split(sharding.spec).axes)
        self._batch = spec.global_batch
        self._shape = (spec.batch_rows(shards), rows.row_length)
        self._sharding = sharding
        slices = sharding.addressable_devices_indices_map(self._shape).values()
        held = {place for index in slices if index for place in range(*index[0].indices(self._shape[0]))}
        self._places = sorted(place for place in held if place < self._batch)
        """Places in the global batch whose rows this process's devices hold."""
        self._pool = ThreadPoolExecutor(READING_THREADS, thread_name_prefix="rows")
        self._training = self._ahead(self._read_training, "the rows of a step", sys.maxsize, spec)
        self._held_out = self._ahead(self._read_held_out, "held-out rows", spec.evaluation_batches, spec)

    def __enter__(self) -> Self:
        """Begin to read the rows of the first evaluation."""
        self._held_out.expect(0)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._training.close()
        self._held_out.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    @property
    def record(self) -> DataRecord:
        return DataRecord(data_digest=self._rows.digest, data_order=self._order.digest, datasets=self._rows.record)

    def training(self, number: int) -> jax.Array:
        """Return training batch `number`, from 0."""
        return self._place(self._training.take(number))

    def held_out(self, number: int) -> jax.Array:
        """Return evaluation batch `number`, from 0. It always has the same rows."""
        return self._place(self._held_out.take(number))

    def _ahead(
        self, read: Callable[[int], np.ndarray], what: str, period: int, spec: TrainingSpec
    ) -> ReadAhead[np.ndarray]:
        batch_bytes = len(self._places) * self._rows.row_length * np.dtype(self._rows.dtype).itemsize
        depth = min(AHEAD_BATCHES, max(1, AHEAD_BYTES // max(1, batch_bytes)))
        patience = PATIENCE * 60 * spec.step_timeout_minutes
        return ReadAhead(read, what, depth, period, patience, self._pool)

    def _read_training(self, number: int) -> np.ndarray:
        return self._rows.read(self._order.training(number, self._places))

    def _read_held_out(self, number: int) -> np.ndarray:
        """Read held-out rows of all datasets in their own order, mixed like the training rows."""
        weights = [dataset.weight for dataset in self._rows.datasets]
        begins = [first + one.training_count for first, one in zip(self._rows.firsts, self._rows.datasets, strict=True)]
        found = [find_element(number * self._batch + place, weights) for place in self._places]
        return self._rows.read([begins[dataset] + within for dataset, within in found])

    def _place(self, own: np.ndarray) -> jax.Array:
        """Return the global array from this process's rows `own`, one for each of its places.

        Rows after the global batch are padding of zeros.
        """
        index = {place: number for number, place in enumerate(self._places)}
        padding = len(own)
        own = np.concatenate([own, np.zeros_like(own, shape=(1, own.shape[1]))])

        def shard(wanted: Any) -> np.ndarray:
            return own[[index.get(place, padding) for place in range(*wanted[0].indices(self._shape[0]))]]

        return jax.make_array_from_callback(self._shape, self._sharding, shard)


def _require_enough(rows: Rows, spec: TrainingSpec) -> None:
    """Check that there are enough rows for an evaluation and a batch, so that no row is in it twice."""
    weights = [dataset.weight for dataset in rows.datasets]
    evaluated = spec.evaluation_batches * spec.global_batch
    faults: list[str] = []
    for dataset, held_out, trained in zip(
        rows.datasets, shares(evaluated, weights), shares(spec.global_batch, weights), strict=True
    ):
        if dataset.held_out_count < held_out:
            faults.append(
                f"{dataset.setting}: {spec.evaluation_batches} evaluation batches of {spec.global_batch} sequences need"
                f" {held_out} held-out rows, got {dataset.held_out_count} and {dataset.training_count} training rows;"
                " use more text or raise data.held_out_fraction"
            )
        if dataset.training_count < trained:
            faults.append(
                f"{dataset.setting}: batches of {spec.global_batch} sequences need {trained} training rows,"
                f" got {dataset.training_count}; use more text, lower data.held_out_fraction or training.global_batch"
            )
    if faults:
        raise InvalidSpec("; ".join(faults))
