import pytest

from infra.accelerators import resolve
from infra.generations import generations
from infra.job_spec import slice_spec
from workloads.preflight.chips import Unsupported, chip_of, clock_hz
from workloads.preflight.topology import describe_devices

SLICES = {"v4": "2x2x2", "v5e": "4x4", "v5p": "2x2x4", "v6e": "4x4", "7x": "2x2x2"}


def test_every_generation_of_the_plan_has_a_chip() -> None:
    assert {generation.name for generation in generations()} == set(SLICES)
    for generation, topology in SLICES.items():
        slices = slice_spec(resolve(generation, topology), 1)
        assert chip_of(slices).usable_hbm_gib_per_device < slices.hbm_gib_per_chip / slices.devices_per_chip + 1


@pytest.mark.parametrize(("generation", "ghz"), [("v4", 1.05), ("v5e", 1.5), ("v5p", 1.75), ("v6e", 1.75)])
def test_the_clock_follows_from_the_rated_peak(generation: str, ghz: float) -> None:
    assert clock_hz(slice_spec(resolve(generation, SLICES[generation]), 1)) == pytest.approx(ghz * 1e9, rel=3e-3)


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
