"""The pictures of the mesh, as text and as SVG."""

import re

import pytest

from tests.workloads.preflight.jobs import slices_of
from workloads.report.mesh_text import WIDTH, PlacedArray, Placement, hosts_in_order, mesh_picture
from workloads.report.pictures import mesh_drawing
from workloads.spec import MeshSpec, SliceSpec


def slices(count: int, hosts: int, devices: int) -> SliceSpec:
    sizes = {"count": count, "hosts": hosts, "chips_per_host": devices}
    return slices_of("v6e", "4x4").model_copy(update=sizes)


def placed(hardware: SliceSpec, mesh: MeshSpec, *arrays: PlacedArray) -> Placement:
    return Placement(mesh=mesh, slices=hardware, hosts=hosts_in_order(hardware), arrays=arrays)


def array(name: str, shape: tuple[int, ...], *split: tuple[str, ...]) -> PlacedArray:
    return PlacedArray(name=name, shape=shape, dtype="float32", element_bytes=4, split=split)


PICTURE = """\
mesh replica 2 x stage 2 x fsdp 2 x tensor 2 over 2 slices of 2 hosts with 4 devices each (v6e 4x4)
slice 0: replica 0
          host 0 |  host 1
  device 0 1 2 3 | 0 1 2 3
  stage  0 0 0 0 | 1 1 1 1
  fsdp   0 0 1 1 | 0 0 1 1
  tensor 0 1 0 1 | 0 1 0 1
slice 1: replica 1
          host 0 |  host 1
  device 0 1 2 3 | 0 1 2 3
  stage  0 0 0 0 | 1 1 1 1
  fsdp   0 0 1 1 | 0 0 1 1
  tensor 0 1 0 1 | 0 1 0 1

array             shape               split over             a device
query             float32[8,512,512]  stage x fsdp·tensor x -   1.0 MiB
key and 1 alike   float32[8,512]      - x tensor               16.0 KiB
step              float32[]           whole on every device         4 B
4 arrays, 1.0 MiB a device"""


def test_the_picture_says_who_holds_which_coordinate_and_which_array() -> None:
    placement = placed(
        slices(2, 2, 4),
        MeshSpec(replica=2, stage=2, fsdp=2, tensor=2),
        array("query", (8, 512, 512), ("stage",), ("fsdp", "tensor")),
        array("key", (8, 512), (), ("tensor",)),
        array("value", (8, 512), (), ("tensor",)),
        array("step", ()),
    )
    drawn = mesh_picture(placement)
    assert re.sub(" +", " ", drawn) == re.sub(" +", " ", PICTURE)
    assert drawn.splitlines()[:13] == PICTURE.splitlines()[:13]


def test_stages_over_slices_are_named_by_slice() -> None:
    drawn = mesh_picture(placed(slices(4, 1, 2), MeshSpec(replica=2, stage=2, fsdp=2)))
    heads = [line for line in drawn.splitlines() if line.startswith("slice")]
    assert heads == [
        f"slice {2 * replica + stage}: replica {replica}, stage {stage}" for replica in (0, 1) for stage in (0, 1)
    ]


def test_a_mesh_in_another_order_is_drawn_as_it_is() -> None:
    crossed = Placement(mesh=MeshSpec(replica=1, fsdp=4), slices=slices(1, 2, 2), hosts=(0, 1, 1, 0), arrays=())
    assert "  fsdp      0 3 |    1 2" in mesh_picture(crossed).splitlines()


@pytest.mark.parametrize(
    ("hardware", "mesh"),
    [
        (slices(64, 4, 4), MeshSpec(replica=64, fsdp=16)),
        (slices(64, 64, 4), MeshSpec(replica=64, fsdp=32, tensor=8)),
        (slices(2, 64, 8), MeshSpec(replica=2, stage=2, fsdp=256)),
        (slices(1, 1, 1), MeshSpec(replica=1, fsdp=1)),
    ],
)
def test_a_large_job_is_shown_by_its_first_and_last_parts(hardware: SliceSpec, mesh: MeshSpec) -> None:
    many = [array(f"{'a very long name ' * 5}{size}", (size, 2048), (), ("fsdp",)) for size in range(1, 40)]
    placement = placed(hardware, mesh, *many)
    lines = mesh_picture(placement).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert len(lines) < 60
    assert any(line.startswith(f"slice {hardware.count - 1}: ") for line in lines)
    drawing = mesh_drawing(placement)
    assert drawing.count("<rect") < 8 * 8 * 10
    assert f"slice {hardware.count - 1}, host {hardware.hosts - 1}, device 0" in drawing


def test_shards_are_what_a_device_holds() -> None:
    mesh = MeshSpec(replica=2, fsdp=4, tensor=2)
    split = array("a", (3, 10, 16), (), ("fsdp",), ("fsdp", "tensor"))
    assert split.shard_shape(mesh) == (3, 3, 2)
    assert split.shard_bytes(mesh) == 72
    assert array("b", (6, 5)).shard_shape(mesh) == (6, 5)
