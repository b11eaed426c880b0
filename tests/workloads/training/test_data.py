from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tests.workloads.jobs import small_job
from workloads.spec import TrainingSpec
from workloads.training.data import Batches, Rows, load_rows, require_same_rows
from workloads.training.failures import InvalidSpec
from workloads.training.runtime import Processes

ROW_COUNT, TRAINING_COUNT, BATCH = 200, 160, 8


def numbered_rows() -> Rows:
    """Each row holds its own number."""
    return Rows(np.repeat(np.arange(ROW_COUNT, dtype=np.uint8)[:, None], 5, axis=1), "uint8", TRAINING_COUNT, "digest")


def batches(seed: int, devices: int) -> Batches:
    mesh = Mesh(np.array(jax.devices()[:devices]), ("devices",))
    spec = small_job(Path("unused"), seed=seed, global_batch=BATCH, evaluation_batches=2).training
    return Batches(numbered_rows(), spec, NamedSharding(mesh, PartitionSpec("devices")))


def row_numbers(batch: jax.Array) -> list[int]:
    return np.asarray(batch)[:, 0].tolist()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31 - 1), st.integers(0, 10**6))
def test_the_batch_of_a_step_depends_on_seed_and_step_alone(seed: int, step: int) -> None:
    expected = row_numbers(batches(seed, 1).training(step))
    for devices in (2, 8):
        batch = batches(seed, devices).training(step)
        shards = sorted(batch.addressable_shards, key=lambda shard: shard.index[0].start or 0)
        assert [number for shard in shards for number in row_numbers(shard.data)] == expected


def test_an_epoch_shows_every_training_row_once_and_no_held_out_row() -> None:
    source = batches(3, 1)
    steps = TRAINING_COUNT // BATCH
    epochs = [
        [number for step in range(start, start + steps) for number in row_numbers(source.training(step))]
        for start in (0, steps)
    ]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(TRAINING_COUNT))
    assert epochs[0] != epochs[1]


def test_evaluation_sees_held_out_rows_only_in_file_order() -> None:
    source = batches(3, 8)
    assert row_numbers(source.held_out(0)) + row_numbers(source.held_out(1)) == list(range(160, 176))


def test_too_few_held_out_rows_are_refused() -> None:
    spec: TrainingSpec = small_job(Path("unused"), global_batch=BATCH, evaluation_batches=6).training
    sharding = NamedSharding(Mesh(np.array(jax.devices()[:1]), ("devices",)), PartitionSpec("devices"))
    with pytest.raises(InvalidSpec, match="need 48 held-out rows, got 40"):
        Batches(numbered_rows(), spec, sharding)


def test_rows_are_the_standard_library_and_the_same_when_read_again(tmp_path: Path) -> None:
    spec = small_job(Path("unused")).data
    built, again = load_rows(spec, 256, 64, tmp_path / "one"), load_rows(spec, 256, 64, tmp_path / "one")
    elsewhere = load_rows(spec, 256, 64, tmp_path / "two")
    assert built.digest == again.digest == elsewhere.digest
    assert built.tokens.shape == (spec.max_bytes // 65, 65)
    assert b"import" in built.tokens.tobytes()
    assert len(list((tmp_path / "one").iterdir())) == 1


class ThreeHosts(Processes):
    """Three hosts of which the last holds other data."""

    def gather(self, key: str, value: str) -> list[str]:
        return [value, value.replace("host-0", "host-1"), '["host-2", "another digest"]']


def test_a_host_with_other_data_is_named() -> None:
    with pytest.raises(InvalidSpec, match=r"but host-2 \(another dige\) differ"):
        require_same_rows(numbered_rows(), ThreeHosts(0, 3, "host-0"))
