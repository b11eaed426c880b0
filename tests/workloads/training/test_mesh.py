from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from etils import epath
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from tests.workloads.jobs import small_job
from workloads.report.mesh_text import Placement
from workloads.spec import MeshSpec, SliceSpec
from workloads.training.failures import InvalidSpec
from workloads.training.mesh import arrange, placement, show_placement


@dataclass(frozen=True)
class FakeDevice:
    id: int
    process_index: int
    slice_index: int
    coords: tuple[int, int, int]
    platform: str = "tpu"
    device_kind: str = "TPU v6 lite"
    core_on_chip: int = 0


def v6e_4x4(slice_count: int) -> list[FakeDevice]:
    """Return devices of `slice_count` slices 4x4, four hosts of 2x2 chips each, in no useful order."""
    places = product(range(slice_count), range(4), range(4))
    devices = [
        FakeDevice(number, slice_index * 4 + (y // 2) * 2 + x // 2, slice_index, (x, y, 0))
        for number, (slice_index, y, x) in enumerate(places)
    ]
    return devices[::-1]


MESHES = [
    (1, MeshSpec(replica=1, fsdp=16)),
    (2, MeshSpec(replica=2, fsdp=16)),
    (2, MeshSpec(replica=4, fsdp=8)),
    (4, MeshSpec(replica=4, fsdp=16)),
    (2, MeshSpec(replica=2, fsdp=4, tensor=4)),
    (2, MeshSpec(replica=2, stage=2, fsdp=4, tensor=2)),
    (4, MeshSpec(replica=2, stage=2, fsdp=16)),
    (4, MeshSpec(replica=1, stage=8, fsdp=4, tensor=2)),
]


@pytest.mark.parametrize(("slice_count", "mesh"), MESHES, ids=str)
def test_on_tpus_the_inner_axes_stay_inside_one_slice(slice_count: int, mesh: MeshSpec) -> None:
    devices = v6e_4x4(slice_count)
    array = arrange(mesh, SliceSpec.of_cpu(slice_count, 4, 4), devices)
    assert array.shape == tuple(mesh.sizes.values())
    assert {device.id for device in array.flat} == {device.id for device in devices}
    for group in array.reshape(-1, mesh.fsdp * mesh.tensor):
        assert len({device.slice_index for device in group}) == 1
    for stages in array.reshape(mesh.replica, -1):
        whole_slices = mesh.stage * mesh.fsdp * mesh.tensor > 16
        assert len({device.slice_index for device in stages}) == (stages.size // 16 if whole_slices else 1)


CPU_MESHES = [
    (2, 2, 4, MeshSpec(replica=2, fsdp=8)),
    (2, 1, 4, MeshSpec(replica=2, fsdp=2, tensor=2)),
    (1, 4, 2, MeshSpec(replica=1, stage=2, fsdp=4)),
    (3, 2, 1, MeshSpec(replica=3, fsdp=2)),
    (2, 2, 2, MeshSpec(replica=1, stage=2, fsdp=4)),
]


@pytest.mark.parametrize(("slice_count", "hosts", "chips", "mesh"), CPU_MESHES, ids=str)
def test_on_cpus_the_inner_axes_stay_inside_one_slice(slice_count: int, hosts: int, chips: int, mesh: MeshSpec) -> None:
    # JAX numbers CPU devices with ids that jump by 2048 from process to process.
    devices = [
        FakeDevice(process * 2048 + chip, process, 0, (0, 0, 0), platform="cpu")
        for process in reversed(range(slice_count * hosts))
        for chip in range(chips)
    ]
    array = arrange(mesh, SliceSpec.of_cpu(slice_count, hosts, chips), devices)
    for group in array.reshape(-1, mesh.fsdp * mesh.tensor):
        assert len({device.process_index // hosts for device in group}) == 1


def test_a_missing_host_is_refused_with_both_numbers() -> None:
    with pytest.raises(InvalidSpec, match="replica 2 x fsdp 16 needs 32 devices, but 16 joined"):
        arrange(MeshSpec(replica=2, fsdp=16), SliceSpec.of_cpu(2, 4, 4), v6e_4x4(1))


def leaf(shape: tuple[int, ...], sharding: Sharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, np.float32, sharding=sharding)


def placed_on_eight_devices(state: Any = None) -> Placement:
    job = small_job(Path("unused"), replica=2, fsdp=4)
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("replica", "fsdp"))
    up = leaf((2, 64, 8), NamedSharding(mesh, PartitionSpec(None, "fsdp")))
    rows = leaf((16,), NamedSharding(mesh, PartitionSpec(("replica", "fsdp"))))
    return placement(job.mesh, job.slices, mesh, state or {"weights": {"up": up}, "rows": rows})


def test_shapes_and_shardings_of_the_state_are_recorded() -> None:
    placed = placed_on_eight_devices()
    described = {array.name: (array.shape, array.split, array.shard_shape(placed.mesh)) for array in placed.arrays}
    assert described == {
        "weights.up": ((2, 64, 8), ((), ("fsdp",)), (2, 16, 8)),
        "rows": ((16,), (("replica", "fsdp"),), (2,)),
    }
    assert placed.state_bytes == 4 * (2 * 16 * 8 + 2)
    # One process has the devices of the host of each slice.
    assert placed.hosts == (0, 0, 0, 0, 1, 1, 1, 1)


def test_the_picture_is_printed_and_its_facts_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    placed, path = placed_on_eight_devices(), tmp_path / "placement" / "0.json"
    show_placement(placed, epath.Path(path))
    assert "slice 1: replica 1" in capsys.readouterr().out
    assert Placement.model_validate_json(path.read_text()) == placed
