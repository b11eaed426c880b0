"""Makes Keras train one model on all hosts of a call with code written for one host.

This module is imported after the function has imported Keras. Keras lacks two things for hosts that have already
joined: the common seed of all processes, which `keras.distribution.initialize` would set, and splitting batches of
arrays between processes, which it does only for `tf.data`.
"""

import itertools
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import keras
import numpy as np
from keras.src.trainers import data_adapters
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter, can_convert_arrays

_keras: Any = keras
_adapters: Any = data_adapters


def train_on_all_hosts(seed: int) -> None:
    """Seed Keras, spread models over all devices, and split the batches of arrays between processes.

    A distribution that the function sets replaces this one.
    """
    _keras.utils.set_random_seed(seed)
    devices = _keras.distribution.list_devices()
    _keras.distribution.set_distribution(_keras.distribution.DataParallel(devices=devices))
    _adapters.get_data_adapter = partial(_data_adapter, _adapters.get_data_adapter)


def _data_adapter(
    of_keras: Callable[..., Any], x: Any, y: Any = None, sample_weight: Any = None, **options: Any
) -> Any:
    distribution = _keras.distribution.distribution()
    shards = distribution is not None and distribution.num_processes > 1 and distribution.auto_shard_dataset
    if not shards or isinstance(x, _adapters.data_adapter.DataAdapter) or not can_convert_arrays((x, y, sample_weight)):
        return of_keras(x, y, sample_weight, **options)
    return _OwnRows(distribution, x, y, sample_weight, **options)


class _OwnRows(ArrayDataAdapter):
    """Adapter for arrays that every process has. Each process feeds its own rows of every batch.

    Rows of the last batch that do not divide over the devices are left out.
    """

    def __init__(
        self, distribution: Any, x: Any, y: Any, sample_weight: Any, steps_per_epoch: int | None = None, **options: Any
    ):
        super().__init__(x, y, sample_weight, steps=steps_per_epoch, **options)
        size, rows, self._replicas = self.batch_size, self._num_samples, distribution.num_model_replicas
        if size % self._replicas or rows < self._replicas:
            raise ValueError(
                f"batch_size {size} of {rows} rows: each batch is split between {self._replicas} devices; choose a"
                f" multiple of {self._replicas} of at most {rows}"
            )
        self._shards = min(self._replicas, distribution.num_processes)
        self._shard = distribution.data_shard_id

    @property
    def num_batches(self) -> int:
        """Number of batches that have a row for every device."""
        full, rest = divmod(self._num_samples, self.batch_size)
        return full + (rest >= self._replicas)

    def _get_iterator(self, slice_and_convert_fn: Callable[..., Any], inputs: Any) -> Generator[Any]:
        def own(sliceable: Any, indices: Any) -> Any:
            rows = np.asarray(range(self._num_samples)[indices]) if isinstance(indices, slice) else indices
            rows = rows[: len(rows) // self._replicas * self._replicas]
            return slice_and_convert_fn(sliceable, indices=np.split(rows, self._shards)[self._shard])

        yield from itertools.islice(super()._get_iterator(own, inputs), self.num_batches)
