"""`workloads.spec.between_slices`: the bytes and seconds that slices need for each other, by arithmetic."""

from pathlib import Path

import jax.numpy as jnp
import pytest

from tests.workloads.jobs import changed, small_job, validated
from tests.workloads.preflight.jobs import v6e_job
from tests.workloads.training.running import program_of
from workloads.spec import JobSpec, load_preset
from workloads.spec.between_slices import between_slices
from workloads.spec.parameters import total_parameters
from workloads.training.slice_program import Shards

LLAMA = load_preset("llama-3.1-8b").model


def llama() -> JobSpec:
    """Return Llama 3.1 8B on two slices of 16 chips, in bfloat16."""
    job = v6e_job()
    training = job.training.model_dump() | {"compute_dtype": "bfloat16"}
    return validated(job, model=LLAMA, training=training, slice_failure="continue")


def test_a_host_sends_its_shard_of_the_gradients_twice_less_what_its_own_slice_needs() -> None:
    found = between_slices(llama(), None)

    # 16 chips share 8.03 G weights in bfloat16, and each host has 4 of them and 4 x 12.5 GB/s.
    assert found
    assert found.host_bytes == 2 * total_parameters(LLAMA) / 4
    assert found.sent_bytes == found.host_bytes
    assert found.continue_seconds == found.more_seconds == pytest.approx(4.015e9 / 50e9, rel=1e-3)
    assert found.restart_exposed_seconds is None


@pytest.mark.parametrize(("count", "factor"), [(2, 1.0), (4, 1.5), (64, 63 / 32)])
def test_more_slices_send_more_but_never_twice_the_gradients(count: int, factor: float) -> None:
    found = between_slices(changed(v6e_job(), slices={"count": count}, mesh={"replica": count}), None)

    assert found
    assert found.sent_bytes == pytest.approx(factor * found.host_bytes)


def test_steps_between_two_sums_share_their_time_and_what_restart_waits_for_is_not_counted_twice() -> None:
    often, seldom = (
        between_slices(changed(llama(), training={"sync_every": every}), exposed)
        for every, exposed in ((1, 0.010), (16, 0.010))
    )

    assert often
    assert seldom
    assert often.more_seconds == pytest.approx(often.continue_seconds - 0.010)
    assert seldom.continue_seconds == pytest.approx(often.continue_seconds / 16)
    assert seldom.restart_seconds == often.restart_seconds


def test_slices_that_do_not_sum_gradients_or_whose_rate_is_unknown_have_no_figures(tmp_path: Path) -> None:
    assert between_slices(changed(v6e_job(), slices={"count": 1}, mesh={"replica": 1}), None) is None
    assert between_slices(changed(v6e_job(), mesh={"replica": 1, "stage": 2}), None) is None
    assert between_slices(small_job(tmp_path), None) is None


def test_the_bytes_are_those_of_the_vector_that_the_trainer_sends(tmp_path: Path) -> None:
    job = validated(small_job(tmp_path, replica=2, fsdp=4), slice_failure="continue")
    program = program_of(job.of_one_slice)
    wire = jnp.dtype(job.training.compute_dtype)
    sent = Shards(program.state_shapes.parameters, wire).size * wire.itemsize

    on_chips = {"generation": "v6e", "topology": "2x2"}
    found = between_slices(changed(job, slices=on_chips), None)

    assert found
    assert sent == pytest.approx(found.host_bytes, rel=1e-3)
