from pathlib import Path

import jax
import numpy as np
import pytest
from etils import epath
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from tests.workloads.jobs import small_job
from workloads.report.placement import Placement
from workloads.training.placement import placement, show_placement


def leaf(mesh: Mesh, shape: tuple[int, ...], *split: str | tuple[str, ...] | None) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, PartitionSpec(*split)))


def found(tmp_path: Path) -> Placement:
    job = small_job(tmp_path, replica=2, fsdp=4)
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("replica", "fsdp"))
    state = {"weights": {"up": leaf(mesh, (2, 64, 8), None, "fsdp")}, "rows": leaf(mesh, (16,), ("replica", "fsdp"))}
    return placement(job.mesh, job.slices, mesh, state)


def test_shapes_and_shardings_of_the_state_are_recorded(tmp_path: Path) -> None:
    placed = found(tmp_path)
    described = {array.name: (array.shape, array.split, array.shard_shape(placed.mesh)) for array in placed.arrays}
    assert described == {
        "weights.up": ((2, 64, 8), ((), ("fsdp",)), (2, 16, 8)),
        "rows": ((16,), (("replica", "fsdp"),), (2,)),
    }
    assert placed.state_bytes == 4 * (2 * 16 * 8 + 2)
    # One process stands in for the host of each slice.
    assert placed.hosts == (0, 0, 0, 0, 1, 1, 1, 1)


def test_the_picture_is_printed_and_its_facts_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show_placement(found(tmp_path), epath.Path(tmp_path) / "placement" / "0.json")
    assert "slice 1: replica 1" in capsys.readouterr().out
    assert Placement.model_validate_json((tmp_path / "placement" / "0.json").read_text()) == found(tmp_path)


def test_an_array_without_a_place_on_the_mesh_is_named(tmp_path: Path) -> None:
    job = small_job(tmp_path, replica=2, fsdp=4)
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("replica", "fsdp"))
    lost = jax.ShapeDtypeStruct((2,), np.float32, sharding=SingleDeviceSharding(jax.devices()[0]))
    with pytest.raises(TypeError, match=r"\['lost'\] must have a NamedSharding, got SingleDeviceSharding"):
        placement(job.mesh, job.slices, mesh, {"lost": lost})
