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
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from tests.processes import running_hosts
from tests.workloads.jobs import small_job
from workloads.progress import RunStarted, StepProgress
from workloads.spec import ExitCode, MeshSpec
from workloads.training.failures import ReplicasDiffer
from workloads.training.fingerprint import Replicas, Take, compile_fingerprints, differences
from workloads.training.mesh import AXES, FSDP, STAGE, TENSOR

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


def mesh(spec: MeshSpec) -> Mesh:
    devices = np.array(jax.devices()[: spec.devices]).reshape(tuple(spec.sizes.values()))
    return Mesh(devices, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def placed(arrays: dict[str, Any], spec: MeshSpec) -> dict[str, jax.Array]:
    where = mesh(spec)
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


@given(st.integers(0, ARRAYS["rows"].size - 1), st.integers(0, 31))
def test_a_flipped_bit_changes_both_halves(take: Take, rows: dict[str, jax.Array], element: int, bit: int) -> None:
    flipped = ARRAYS["rows"].copy()
    flipped.reshape(-1).view(np.uint32)[element] ^= np.uint32(1 << bit)
    (before,), (after,) = take(rows), take(placed({"rows": flipped}, ROWS_SPLIT))
    assert before["rows"][:8] != after["rows"][:8]
    assert before["rows"][8:] != after["rows"][8:]


@given(st.sets(st.integers(0, ARRAYS["rows"].size - 1), min_size=2, max_size=2), st.integers(0, 31))
def test_the_same_bit_flipped_in_two_elements_does_not_cancel(
    take: Take, rows: dict[str, jax.Array], elements: set[int], bit: int
) -> None:
    flipped = ARRAYS["rows"].copy()
    flipped.reshape(-1).view(np.uint32)[list(elements)] ^= np.uint32(1 << bit)
    (before,), (after,) = take(rows), take(placed({"rows": flipped}, ROWS_SPLIT))
    assert before["rows"][:8] != after["rows"][:8]
    assert before["rows"][8:] != after["rows"][8:]


@given(st.permutations(range(16)).filter(lambda order: order != list(range(16))))
def test_rows_in_another_order_change_both_halves(take: Take, rows: dict[str, jax.Array], order: list[int]) -> None:
    moved = {"rows": np.take(ARRAYS["rows"], order, axis=0)}
    (before,), (after,) = take(rows), take(placed(moved, ROWS_SPLIT))
    assert before["rows"][:8] != after["rows"][:8]
    assert before["rows"][8:] != after["rows"][8:]


def test_a_replica_that_holds_something_else_is_named(rows: dict[str, jax.Array]) -> None:
    whole = jax.device_put(np.asarray(rows["rows"]), NamedSharding(mesh(MeshSpec(replica=4, fsdp=1)), PartitionSpec()))
    shards = [shard.data for shard in whole.addressable_shards]
    shards[2] = shards[2].at[3, 1].add(1e-6)
    drifted = {"rows": jax.make_array_from_single_device_arrays(whole.shape, whole.sharding, shards)}
    replicas = compile_fingerprints(drifted)(drifted)
    (message,) = differences(replicas[0], replicas)
    assert message.startswith(f"rows (expected {replicas[0]['rows']}, got {replicas[2]['rows']} in replica 2)")


TIMEOUT_SECONDS = 600

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
    if int(state.step) == 4 and os.environ["MEGASCALE_SLICE_ID"] == "1" and os.environ["JOB_RESTART_ATTEMPT"] == "0":
        flipped(state)
    return step(self, state, batch)
CompiledProgram.step = struck
"""
"""Code that runs in every process before its own, as Python's `sitecustomize`."""


@dataclass(frozen=True)
class Chip:
    process_index: int


def replicas(*processes: list[int], hosts: int = 2) -> Replicas:
    """Return a replica for each list of the processes that its devices belong to."""
    devices = np.array([[Chip(index) for index in row] for row in processes], dtype=object)
    return Replicas(devices, small_job(Path("unused"), hosts=hosts).slices)


GOOD = {"a": "0", "b": "1", "c": "2"}


def test_replicas_that_hold_the_same_agree_on_it() -> None:
    pair = replicas([0, 1], [2, 3])
    assert pair.several
    assert pair.require_equal(4, [GOOD, dict(GOOD)]) == GOOD
    assert not replicas([0, 1]).several


@pytest.mark.parametrize(
    ("found", "named"),
    [
        ([GOOD, GOOD, {**GOOD, "b": "9"}], r"slice 2 computed wrongly: b \(expected 1, got 9 in replica 2\); nothing"),
        ([{**GOOD, "a": "9", "b": "9"}, GOOD, GOOD], r"slice 0 computed wrongly: a \(.*\) and 1 more; nothing"),
        ([GOOD, {**GOOD, "b": "9"}], "slices 0 or 1 computed wrongly: b "),
        ([GOOD, {**GOOD, "b": "9"}, {**GOOD, "b": "8"}], "slices 0 or 1 or 2 computed wrongly: b "),
    ],
)
def test_the_odd_one_out_is_named_and_of_two_both(found: list[dict[str, str]], named: str) -> None:
    rows = [[2 * index, 2 * index + 1] for index in range(len(found))]
    with pytest.raises(ReplicasDiffer, match=f"^step 8: all slices must hold the same, but {named}"):
        replicas(*rows).require_equal(8, found)


def test_a_replica_over_two_slices_names_both() -> None:
    with pytest.raises(ReplicasDiffer, match="slices 4 or 5 computed wrongly"):
        replicas([0, 1], [2, 3], [4, 5], hosts=1).require_equal(8, [GOOD, GOOD, {**GOOD, "a": "9"}])


def started(folder: Path, attempt: int, **training: Any) -> tuple[list[int], list[str], list[str]]:
    """Run two slices of one host each. The second flips a bit of its weights after step 4 of its first attempt."""
    job = small_job(folder / "storage", replica=2, fsdp=2, hosts=1, steps=6, save_every_steps=3, **training)
    path = {"PYTHONPATH": f"{folder}:{Path(__file__).parents[3]}"}
    with running_hosts(job, attempt, folder / f"logs-{attempt}", TIMEOUT_SECONDS, path) as hosts:
        codes = [host.process.wait(TIMEOUT_SECONDS) for host in hosts.all]
        logs = [host.log.read_text() for host in hosts.all]
        return codes, logs, [host.address for host in hosts.all]


def cause(folder: Path, address: str) -> str:
    """Return the cause that the host's first attempt recorded."""
    (record,) = (folder / "storage" / "failures" / "run-1").glob(f"{address}-0-*.json")
    return json.loads(record.read_text())["cause"]


@pytest.mark.complete
@pytest.mark.timeout(2 * TIMEOUT_SECONDS)
def test_a_bit_that_flips_in_one_slice_is_found_and_training_goes_on_from_before_it(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(FLIPPED_BIT)
    codes, logs, addresses = started(tmp_path, 0, compare_slices_every_steps=5)
    assert codes == [ExitCode.SILENT_DAMAGE] * 2
    found = cause(tmp_path, addresses[0])
    assert found.startswith("step 5: all slices must hold the same, but slices 0 or 1 computed wrongly: ")
    assert "parameters.final_scale (expected" in found
    codes, logs, _ = started(tmp_path, 1, compare_slices_every_steps=5)
    assert codes == [0, 0], "\n".join(logs)
    lines = logs[0].splitlines()
    assert [found.step for found in map(RunStarted.parse, lines) if found] == [3]
    assert [found.step for found in map(StepProgress.parse, lines) if found] == [4, 5, 6]


@pytest.mark.complete
@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_a_save_compares_the_slices_and_keeps_nothing_of_what_differs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(FLIPPED_BIT)
    codes, _, addresses = started(tmp_path, 0, compare_slices_every_steps=100)
    assert codes == [ExitCode.SILENT_DAMAGE] * 2
    assert cause(tmp_path, addresses[0]).startswith("step 6: all slices must hold the same")
    assert [path.name for path in (tmp_path / "storage" / "runs" / "run-1" / "checkpoints").iterdir()] == ["3"]
