import pytest

from infra.submission import slice_spec
from infra.tpu import generations, resolve
from workloads.preflight.topology import describe_devices
from workloads.spec.chips import Unsupported, chip_of, clock_hz, ici_bytes_per_second

SLICES = {"v4": "2x2x2", "v5e": "4x4", "v5p": "2x2x4", "v6e": "4x4", "7x": "2x2x2"}


def test_every_generation_of_the_plan_has_a_chip() -> None:
    assert {generation.name for generation in generations()} == set(SLICES)
    for generation, topology in SLICES.items():
        slices = slice_spec(resolve(generation, topology), 1)
        assert chip_of(slices).usable_hbm_gib_per_device < slices.hbm_gib_per_chip / slices.devices_per_chip + 1


@pytest.mark.parametrize(("generation", "ghz"), [("v4", 1.05), ("v5e", 1.5), ("v5p", 1.75), ("v6e", 1.75)])
def test_the_clock_follows_from_the_rated_peak(generation: str, ghz: float) -> None:
    assert clock_hz(slice_spec(resolve(generation, SLICES[generation]), 1)) == pytest.approx(ghz * 1e9, rel=3e-3)


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
    assert ici_bytes_per_second(slice_spec(resolve(generation, topology), 1)) == gb_per_second * 1e9


@pytest.mark.parametrize(("generation", "topology"), SLICES.items())
def test_libtpu_describes_as_many_devices_as_the_plan_has(generation: str, topology: str) -> None:
    pytest.importorskip("libtpu")
    slices = slice_spec(resolve(generation, topology), 2)

    devices = describe_devices(slices, {})

    assert len(devices) == slices.devices
    assert len({device.process_index for device in devices}) == slices.count * slices.hosts


def test_a_slice_that_libtpu_does_not_know_is_refused() -> None:
    pytest.importorskip("libtpu")
    slices = slice_spec(resolve("v6e", "4x4"), 2).model_copy(update={"topology": "5x7x3"})

    with pytest.raises(Unsupported, match="does not know 2 slices of v6e:5x7x3"):
        describe_devices(slices, {})


def test_a_generation_without_a_compiler_is_refused() -> None:
    slices = slice_spec(resolve("v6e", "4x4"), 2).model_copy(update={"generation": "cpu"})

    with pytest.raises(Unsupported, match="'cpu' cannot be compiled ahead of time; choose one of v4, v5e"):
        describe_devices(slices, {})
