from workloads.spec import SliceSpec


def test_slices_of_cpu_devices_have_no_rating_that_a_share_could_be_taken_of() -> None:
    slices = SliceSpec.of_cpu(count=2, hosts=3, chips_per_host=4)
    assert (slices.generation, slices.topology, slices.devices_per_slice, slices.devices) == ("cpu", "3x4", 12, 24)
    assert (slices.peak_bf16_tflops_per_chip, slices.hbm_gib_per_chip) == (0, 0)
