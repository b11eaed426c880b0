import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import NamedSharding, PartitionSpec

from tests.workloads.hosts import TIMEOUT_SECONDS, attempt, first_code
from tests.workloads.jobs import small_job
from tests.workloads.training.running import mesh_of
from workloads.spec import ExitCode, MeshSpec
from workloads.training.failures import ReplicasDiffer
from workloads.training.fingerprint import Replicas, Take, compile_fingerprints, differences
from workloads.training.mesh import FSDP, STAGE, TENSOR

SPLITS = {
    "rows": PartitionSpec(FSDP),
    "layers": PartitionSpec(STAGE, FSDP, TENSOR),
    "table": PartitionSpec((TENSOR, FSDP)),
    "whole": PartitionSpec(),
    "step": PartitionSpec(),
}
ARRAYS = {
    "rows": np.linspace(-1, 1, 16 * 3, dtype=np.float32).reshape(16, 3),
    "layers": np.arange(2 * 8 * 6).reshape(2, 8, 6).astype(jnp.bfloat16),
    "table": np.linspace(0, 1, 8 * 3, dtype=np.float32).reshape(8, 3),
    "whole": np.ones(7, np.float32),
    "step": np.int32(11),
}

ROWS_SPLIT = MeshSpec(replica=1, fsdp=8)


def placed(arrays: dict[str, Any], spec: MeshSpec) -> dict[str, jax.Array]:
    where = mesh_of(spec)
    return {name: jax.device_put(array, NamedSharding(where, SPLITS[name])) for name, array in arrays.items()}


@pytest.mark.parametrize(
    "spec",
    [
        MeshSpec(replica=2, fsdp=4),
        MeshSpec(replica=4, fsdp=2),
        MeshSpec(replica=1, fsdp=8),
        MeshSpec(replica=2, fsdp=2, tensor=2),
        MeshSpec(replica=1, stage=2, fsdp=2, tensor=2),
    ],
    ids=str,
)
def test_fingerprints_are_the_same_however_the_arrays_lie(spec: MeshSpec) -> None:
    (expected,) = compile_fingerprints(alone := placed(ARRAYS, MeshSpec(replica=1, fsdp=1)))(alone)
    assert compile_fingerprints(split := placed(ARRAYS, spec))(split) == [expected] * spec.replica
    assert list(expected) == ["layers", "rows", "step", "table", "whole"]


@pytest.fixture(scope="module")
def rows() -> dict[str, jax.Array]:
    return placed({"rows": ARRAYS["rows"]}, ROWS_SPLIT)


@pytest.fixture(scope="module")
def take(rows: dict[str, jax.Array]) -> Take:
    return compile_fingerprints(rows)


def assert_both_halves_change(take: Take, rows: dict[str, jax.Array], others: Any) -> None:
    (before,), (after,) = take(rows), take(placed({"rows": others}, ROWS_SPLIT))
    assert before["rows"][:8] != after["rows"][:8]
    assert before["rows"][8:] != after["rows"][8:]


@pytest.mark.parametrize("count", [1, 2])
@given(data=st.data(), bit=st.integers(0, 31))
def test_the_same_bit_flipped_in_one_element_or_in_two_changes_both_halves(
    take: Take, rows: dict[str, jax.Array], count: int, data: st.DataObject, bit: int
) -> None:
    elements = data.draw(st.sets(st.integers(0, ARRAYS["rows"].size - 1), min_size=count, max_size=count))
    flipped = ARRAYS["rows"].copy()
    flipped.reshape(-1).view(np.uint32)[list(elements)] ^= np.uint32(1 << bit)
    assert_both_halves_change(take, rows, flipped)


@given(st.permutations(range(16)).filter(lambda order: order != list(range(16))))
def test_rows_in_another_order_change_both_halves(take: Take, rows: dict[str, jax.Array], order: list[int]) -> None:
    assert_both_halves_change(take, rows, np.take(ARRAYS["rows"], order, axis=0))


def test_a_replica_that_holds_something_else_is_named(rows: dict[str, jax.Array]) -> None:
    whole = jax.device_put(
        np.asarray(rows["rows"]), NamedSharding(mesh_of(MeshSpec(replica=4, fsdp=1)), PartitionSpec())
    )
    shards = [shard.data for shard in whole.addressable_shards]
    shards[2] = shards[2].at[3, 1].add(1e-6)
    drifted = {"rows": jax.make_array_from_single_device_arrays(whole.shape, whole.sharding, shards)}
    replicas = compile_fingerprints(drifted)(drifted)
    (message,) = differences(replicas[0], replicas)
    assert message.startswith(f"rows (expected {replicas[0]['rows']}, got {replicas[2]['rows']} in replica 2)")


FLIPPED_BIT = """
import os
from workloads.training.step import CompiledProgram
def flipped(state):
    import jax, numpy as np
    scale = state.parameters["final_scale"]
    shards = [np.array(shard.data) for shard in scale.addressable_shards]
    shards[0].view(np.uint32)[3] ^= 1 << 12
    parts = [jax.device_put(part, shard.device) for part, shard in zip(shards, scale.addressable_shards)]
    state.parameters["final_scale"] = jax.make_array_from_single_device_arrays(scale.shape, scale.sharding, parts)
step = CompiledProgram.step
def struck(self, state, batch):
    if int(state.step) == 4 and os.environ["MEGASCALE_SLICE_ID"] == "1":
        flipped(state)
    return step(self, state, batch)
CompiledProgram.step = struck
"""
"""First code of every process. The second slice flips a bit of its weights after step 4."""


@dataclass(frozen=True)
class Chip:
    process_index: int


def replicas(*processes: list[int], hosts: int = 2) -> Replicas:
    """Return a replica for each list of the processes that its devices belong to."""
    devices = np.array([[Chip(index) for index in row] for row in processes], dtype=object)
    return Replicas(devices, small_job(Path("unused"), hosts=hosts).slices)


GOOD = {"a": "0", "b": "1", "c": "2"}
OTHER = GOOD | {"b": "9"}


@pytest.mark.parametrize(
    ("hosts", "found", "named"),
    [
        (2, [GOOD, GOOD, OTHER], r"slice 2 computed wrongly: b \(expected 1, got 9 in replica 2\); nothing"),
        (2, [OTHER | {"a": "9"}, GOOD, GOOD], r"slice 0 computed wrongly: a \(.*\) and 1 more; nothing"),
        (2, [GOOD, OTHER], "slices 0 or 1 computed wrongly: b "),
        (2, [GOOD, OTHER, {**GOOD, "b": "8"}], "slices 0 or 1 or 2 computed wrongly: b "),
        # A replica over two slices.
        (1, [GOOD, GOOD, {**GOOD, "a": "9"}], "slices 4 or 5 computed wrongly: a "),
    ],
)
def test_the_odd_one_out_is_named_and_of_two_both(hosts: int, found: list[dict[str, str]], named: str) -> None:
    rows = [[2 * index, 2 * index + 1] for index in range(len(found))]
    with pytest.raises(ReplicasDiffer, match=f"^step 8: all slices must hold the same, but {named}"):
        replicas(*rows, hosts=hosts).require_equal(8, found)


@pytest.mark.complete
@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_a_save_compares_the_slices_and_keeps_nothing_of_what_differs(tmp_path: Path) -> None:
    schedule = {"steps": 6, "save_every_steps": 3, "compare_slices_every_steps": 100}
    job = small_job(tmp_path / "storage", replica=2, fsdp=2, hosts=1, **schedule)
    first = attempt(job, 0, tmp_path / "logs", first_code(tmp_path / "site", FLIPPED_BIT))
    assert first.codes == [ExitCode.SILENT_DAMAGE] * 2
    (record,) = (tmp_path / "storage" / "failures" / "run-1").glob(f"{first.addresses[0]}-0-*.json")
    cause = json.loads(record.read_text())["cause"]
    assert cause.startswith("step 6: all slices must hold the same, but slices 0 or 1 computed wrongly: ")
    assert "parameters.final_scale (expected" in cause
    assert [path.name for path in (tmp_path / "storage" / "runs" / "run-1" / "checkpoints").iterdir()] == ["3"]
