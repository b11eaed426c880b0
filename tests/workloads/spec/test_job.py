import json
import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.checkout import ROOT
from tests.workloads.jobs import small_job
from workloads.spec import DataSpec, JobSpec, LoraSpec, TokenFileSpec, load_preset, preset_names
from workloads.spec.model import total_parameters
from workloads.training.flops import flops_per_token

JOB = small_job(Path("somewhere"))
EACH_STEP = {"gather_weights": "each-step"}


def four_slices(**changes: Any) -> JobSpec:
    """Return a job on four slices of two devices, with some values of its sections replaced."""
    whole = small_job(Path("somewhere"), replica=4, fsdp=2).model_dump()
    for section, values in changes.items():
        whole[section] = whole.get(section, {}) | values
    return JobSpec.model_validate(whole)


@pytest.mark.parametrize(
    "data", [JOB.data, TokenFileSpec(source="token-file", path="gs://bucket/tokens", held_out_fraction=0.01)]
)
def test_a_job_survives_the_pods_environment(data: DataSpec) -> None:
    job = JOB.model_copy(update={"data": data})
    assert JobSpec.model_validate_json(job.model_dump_json()) == job


def test_the_former_word_for_a_new_run_is_understood() -> None:
    job = four_slices().model_dump()
    job["storage"]["existing_run"] = "anew"
    assert JobSpec.model_validate(job).storage.existing_run == "new"


def test_a_text_that_no_json_holds_is_refused() -> None:
    with pytest.raises(ValidationError, match="text without lone surrogates"):
        JobSpec.model_validate(JOB.model_dump() | {"name": "\ud800"})


@pytest.mark.parametrize("name", ["ignored_token", "document_end"])
def test_a_token_that_the_model_does_not_know_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match=rf"training.{name} must be a token, .* \(256\), got 256"):
        four_slices(training={name: 256})
    assert getattr(four_slices(training={name: 255}).training, name) == 255


def test_adapters_need_weights_that_they_adapt() -> None:
    lora: dict[str, Any] = {"rank": 4, "alpha": 8, "targets": ["gate", "down"]}
    whole: dict[str, Any] = JOB.model_dump()
    whole["training"]["lora"] = lora
    with pytest.raises(ValidationError, match="initial_weights must be the folder of the weights that .*lora adapts"):
        JobSpec.model_validate(whole)
    whole["initial_weights"] = "gs://bucket/weights"
    job = JobSpec.model_validate(whole)
    assert JobSpec.model_validate_json(job.model_dump_json()).training.lora == LoraSpec(**lora)
    whole["training"]["lora"] = lora | {"targets": ["gate", "gate"]}
    with pytest.raises(ValidationError, match="each target only once, got gate, gate"):
        JobSpec.model_validate(whole)


def test_a_kernel_that_cannot_compute_the_model_is_refused_with_all_that_it_lacks() -> None:
    parts = {"attention_soft_cap": 50.0, "windows": {"size": 8, "pattern": ["local"]}}
    for attention in ("splash", "reference"):
        assert four_slices(model=parts, training={"attention": attention}).model.window("local") == 8
    with pytest.raises(ValidationError) as caught:
        four_slices(model=parts, training={"attention": "fused"})
    for part in parts:
        assert f"must be splash or reference with model.{part}, which fused cannot compute" in str(caught.value)
    assert four_slices(model={"query_key_norm": True}, training={"attention": "fused"})


@pytest.mark.parametrize(("count", "accumulation"), [(4, 1), (2, 2), (1, 4)])
def test_fewer_slices_keep_the_batch_by_accumulation(count: int, accumulation: int) -> None:
    job = four_slices().on_slices(count)
    assert (job.slices.count, job.mesh.replica, job.training.accumulation) == (count, count, accumulation)
    assert job.training.global_batch == 16


def test_on_fewer_slices_it_is_a_job_that_can_be_written_down_and_read() -> None:
    # From 7 slices to 4, the accumulation would round up twice, to 4, which does not divide 840 sequences over them.
    whole = small_job(Path("somewhere"), replica=8, fsdp=1, global_batch=840).model_dump()
    whole["slices"]["min_count"] = 4
    fewer = JobSpec.model_validate(whole).on_slices(7)
    assert JobSpec.model_validate(fewer.model_dump()) == fewer


def test_grown_back_it_is_the_job_that_it_was() -> None:
    job = four_slices(training={"accumulation": 2})
    assert job.on_slices(2).on_slices(4) == job


@pytest.mark.parametrize(
    ("gather_weights", "count", "accumulation", "rows", "padding"),
    [
        ("each-layer", 64, 2, 12, 0),
        ("each-layer", 63, 3, 13, 63 * 13 - 768),
        ("each-layer", 48, 3, 16, 0),
        ("each-layer", 33, 4, 24, 33 * 24 - 768),
        ("each-step", 63, 3, 13, 63 * 15 - 768),
        ("each-step", 48, 4, 16, 0),
    ],
)
def test_rows_of_padding_fill_up_a_batch_that_does_not_divide(
    gather_weights: str, count: int, accumulation: int, rows: int, padding: int
) -> None:
    sizes: dict[str, Any] = {"global_batch": 64 * 12, "accumulation": 2, "gather_weights": gather_weights}
    whole = small_job(Path("somewhere"), replica=64, fsdp=1, min_count=32, **sizes)
    job = whole.on_slices(count)
    assert JobSpec.model_validate(job.model_dump()) == job
    assert (job.training.accumulation, job.rows_per_device, job.padding_rows) == (accumulation, rows, padding)
    assert job.training.part_rows(rows) <= whole.training.part_rows(whole.rows_per_device) == 6


def test_a_job_that_runs_on_all_its_slices_only_must_divide_the_batch() -> None:
    with pytest.raises(ValueError, match=r"on 3 of its 4 slices: training.global_batch must be a multiple of .*\(12\)"):
        four_slices().on_slices(3)


@pytest.mark.parametrize(
    ("least", "mesh", "fault"),
    [
        (5, {}, r"slices.min_count must be at most slices.count \(4\), got 5"),
        (2, {"replica": 2, "stage": 2}, r"slices.min_count needs mesh.replica to be a multiple of .* \(4\), .* got 2"),
    ],
)
def test_a_least_number_of_slices_must_be_one_that_can_train(least: int, mesh: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        four_slices(slices={"min_count": least}, mesh=mesh, training=EACH_STEP)


def test_a_batch_smaller_than_the_devices_leaves_some_with_padding_only() -> None:
    job = four_slices(slices={"min_count": 1}, training={"global_batch": 3})
    assert (job.rows_per_device, job.training.batch_rows(job.mesh.data_shards), job.padding) == (1, 8, 0.625)


GOLDEN = ROOT / "tests" / "golden" / "presets"

PUBLISHED_BILLIONS = {
    "llama-3.2-1b": 1.236,
    "llama-3.1-8b": 8.030,
    "llama-3.1-70b": 70.554,
    "mixtral-8x7b": 46.703,
    "qwen3-0.6b": 0.5960,
    "qwen3-8b": 8.1907,
    "qwen3-30b-a3b": 30.532,
    "gemma-2-9b": 9.2417,
    "gemma-3-1b": 0.99989,
}


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_is_what_its_golden_file_says(name: str) -> None:
    preset = load_preset(name)
    resolved = {
        **preset.model_dump(mode="json"),
        "total_parameters": total_parameters(preset.model),
        "flops_per_token": flops_per_token(preset.model, preset.training.sequence_length),
    }
    golden = GOLDEN / f"{name}.json"
    if os.environ.get("UPDATE_GOLDEN") == "1":
        golden.write_text(json.dumps(resolved, indent=2) + "\n")
    assert json.loads(golden.read_text()) == resolved


@pytest.mark.parametrize(("name", "billions"), PUBLISHED_BILLIONS.items())
def test_a_published_model_has_as_many_weights_as_published(name: str, billions: float) -> None:
    assert total_parameters(load_preset(name).model) == pytest.approx(billions * 1e9, rel=5e-4)


def test_an_unknown_preset_names_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"'tinny' is not a preset; choose one of gemma-2-9b, .*, tiny"):
        load_preset("tinny")
