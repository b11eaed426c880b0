from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.workloads.jobs import small_job
from workloads.spec import JobSpec, TokenFileSpec

JOB = small_job(Path("somewhere"))


def four_slices(**changes: Any) -> JobSpec:
    """A job on four slices of two devices, with some values of its sections replaced."""
    whole = small_job(Path("somewhere"), replica=4, fsdp=2).model_dump()
    for section, values in changes.items():
        whole[section] |= values
    return JobSpec.model_validate(whole)


def test_a_job_survives_the_pods_environment() -> None:
    assert JobSpec.model_validate_json(JOB.model_dump_json()) == JOB


def test_a_job_on_a_token_folder_survives_it_too() -> None:
    data = TokenFileSpec(source="token-file", path="gs://bucket/tokens", held_out_fraction=0.01)
    job = JOB.model_copy(update={"data": data})
    assert JobSpec.model_validate_json(job.model_dump_json()).data == data


def test_all_that_does_not_fit_is_one_error() -> None:
    with pytest.raises(ValidationError) as caught:
        small_job(Path("somewhere"), replica=1, fsdp=3)
    message = str(caught.value)
    assert "model.embed_dim must be a multiple of mesh.fsdp (3), got 64" in message
    assert "training.global_batch must be a multiple of mesh.replica x mesh.fsdp (3), got 16" in message


@pytest.mark.parametrize("name", ["ignored_token", "document_end"])
def test_a_token_that_the_model_does_not_know_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match=rf"training.{name} must be a token, .* \(256\), got 256"):
        four_slices(training={name: 256})
    assert getattr(four_slices(training={name: 255}).training, name) == 255


@pytest.mark.parametrize(("count", "accumulation"), [(4, 1), (2, 2), (1, 4)])
def test_fewer_slices_keep_the_batch_by_accumulation(count: int, accumulation: int) -> None:
    job = four_slices().on_slices(count)
    assert (job.slices.count, job.mesh.replica, job.training.accumulation) == (count, count, accumulation)
    assert job.training.global_batch == 16


def test_as_many_sequences_at_once_on_a_device_as_before_at_most() -> None:
    job = four_slices(training={"global_batch": 48})
    at_once = [
        fewer.training.global_batch // (fewer.mesh.data_shards * fewer.training.accumulation)
        for fewer in (job, job.on_slices(3), job.on_slices(2))
    ]
    assert at_once == [6, 4, 6]


def test_on_fewer_slices_it_is_a_job_that_can_be_written_down_and_read() -> None:
    # On 4 slices from 7 the accumulation would round up twice, to 4, which does not divide 840 sequences over them.
    whole = small_job(Path("somewhere"), replica=8, fsdp=1, global_batch=840).model_dump()
    whole["slices"]["min_count"] = 4
    fewer = JobSpec.model_validate(whole).on_slices(7)
    assert JobSpec.model_validate(fewer.model_dump()) == fewer


def test_grown_back_it_is_the_job_that_it_was() -> None:
    job = four_slices(training={"accumulation": 2})
    assert job.on_slices(2).on_slices(4) == job


def test_slices_that_do_not_divide_the_batch_are_told() -> None:
    with pytest.raises(ValueError, match=r"on 3 of its 4 slices: training.global_batch must be a multiple of .*\(12\)"):
        four_slices().on_slices(3)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"slices": {"min_count": 5}}, r"slices.min_count must be at most slices.count \(4\), got 5"),
        ({"slices": {"min_count": 1}}, "slices.min_count 1: on 3 of its 4 slices: training.global_batch must be a"),
        (
            {
                "slices": {"min_count": 2},
                "mesh": {"replica": 2, "stage": 2},
                "training": {"gather_weights": "each-step"},
            },
            r"slices.min_count needs mesh.replica to be a multiple of slices.count \(4\), .* got 2",
        ),
    ],
)
def test_a_least_number_of_slices_must_be_one_that_can_train(changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        four_slices(**changes)


def test_a_job_may_do_with_fewer_slices_where_each_number_fits() -> None:
    assert four_slices(slices={"min_count": 2}, training={"global_batch": 48}).slices.min_count == 2
