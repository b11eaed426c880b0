import pytest

from infra.stack.tpu import generations
from tests.workloads.preflight.jobs import slices_of
from workloads.preflight.topology import describe_devices
from workloads.spec.chips import Unsupported, chip_of, clock_hz, ici_bytes_per_second

SLICES = {"v4": "2x2x2", "v5e": "4x4", "v5p": "2x2x4", "v6e": "4x4", "7x": "2x2x2"}


def test_every_generation_of_the_plan_has_a_chip() -> None:
    assert {generation.name for generation in generations()} == set(SLICES)
    for generation, topology in SLICES.items():
        slices = slices_of(generation, topology)
        assert chip_of(slices).usable_hbm_gib_per_device < slices.hbm_gib_per_chip / slices.devices_per_chip + 1


@pytest.mark.parametrize(("generation", "ghz"), [("v4", 1.05), ("v5e", 1.5), ("v5p", 1.75), ("v6e", 1.75)])
def test_the_clock_follows_from_the_rated_peak(generation: str, ghz: float) -> None:
    assert clock_hz(slices_of(generation, SLICES[generation])) == pytest.approx(ghz * 1e9, rel=3e-3)


@pytest.mark.parametrize(
    ("generation", "topology", "gb_per_second"),
    [
        # A chip at a corner has a link for each dimension that does not wrap around, and two for each that does.
        ("v6e", "2x4", 2 * 90),
        ("v6e", "4x4", 2 * 90),
        ("v6e", "8x16", 3 * 90),
        ("v5e", "16x16", 4 * 45),
        ("v5p", "2x2x1", 2 * 90),
        ("v5p", "2x4x4", 3 * 90),
        ("v5p", "4x4x4", 6 * 90),
        # Two devices share the links of a chip.
        ("7x", "4x4x8", 6 * 90 / 2),
    ],
)
def test_traffic_leaves_by_the_links_of_the_chips_with_the_fewest(
    generation: str, topology: str, gb_per_second: float
) -> None:
    assert ici_bytes_per_second(slices_of(generation, topology)) == gb_per_second * 1e9


@pytest.mark.parametrize(("generation", "topology"), SLICES.items())
def test_libtpu_describes_as_many_devices_as_the_plan_has(generation: str, topology: str) -> None:
    pytest.importorskip("libtpu")
    slices = slices_of(generation, topology, 2)
    devices = describe_devices(slices, {})
    assert len(devices) == slices.devices
    assert len({device.process_index for device in devices}) == slices.count * slices.hosts


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"topology": "5x7x3"}, "does not know 2 slices of v6e:5x7x3"),
        ({"generation": "cpu"}, "'cpu' cannot be compiled ahead of time; choose one of v4, v5e"),
        ({"chips_per_host": 3}, "hosts of 3 chips cannot be described to the compiler; expected 1, 2, 4, 8 chips"),
    ],
)
def test_slices_that_nothing_can_be_compiled_for_are_refused(changes: dict[str, object], fault: str) -> None:
    pytest.importorskip("libtpu")
    slices = slices_of("v6e", "4x4", 2).model_copy(update=changes)
    with pytest.raises(Unsupported, match=fault):
        describe_devices(slices, {})
