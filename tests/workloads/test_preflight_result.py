from pathlib import Path
from typing import Any

import pytest

from infra.stack.tpu import resolve
from tests.checkout import ROOT
from tests.workloads.jobs import changed
from tests.workloads.preflight.jobs import v6e_job
from workloads.preflight_result import (
    PreflightResult,
    StepEstimate,
    cached,
    keep,
    load_calibration,
    preflight_key,
    tokens,
    tokens_per_day,
    versions,
)
from workloads.spec import JobSpec, StorageSpec, load_preset
from workloads.training.flops import flops_per_token


def result(spec: JobSpec) -> PreflightResult:
    return PreflightResult(
        key=preflight_key(spec),
        versions=versions(),
        generation=spec.slices.generation,
        topology=spec.slices.topology,
        slices=spec.slices.count,
        chips=spec.slices.chips,
        unsupported=None,
        fits=True,
        peak_gib=1.5,
        needed_gib=1.5,
        usable_gib=31.24,
        biggest_arrays=(),
        remedies=(),
        steps=tuple(
            StepEstimate(kernel_efficiency=share, seconds=1 / share, mfu=share, tokens_per_second_per_chip=1000 * share)
            for share in (0.25, 0.35, 0.5)
        ),
        ici_sent_bytes={"all-gather": 5.0},
        dcn_sent_bytes={"ALL_REDUCE": 7.0},
        dcn_exposed_seconds=0.0,
        compile_wall_seconds=60.0,
        compile_cpu_seconds=90.0,
    )


def test_what_is_kept_is_found_again(tmp_path: Path) -> None:
    spec = v6e_job()
    assert cached(spec, tmp_path) is None
    path = keep(result(spec), tmp_path)
    assert cached(spec, tmp_path) == result(spec)
    assert list(tmp_path.iterdir()) == [path]


def test_a_cache_that_cannot_be_read_counts_as_none(tmp_path: Path) -> None:
    path = keep(result(v6e_job()), tmp_path)
    for damaged in (path.read_bytes()[:-20], b"\xff"):
        path.write_bytes(damaged)
        assert cached(v6e_job(), tmp_path) is None
    assert cached(v6e_job(), path) is None


def test_tokens_are_those_of_all_steps_and_of_all_chips() -> None:
    spec = changed(v6e_job(), training={"steps": 1000, "global_batch": 64, "sequence_length": 1024})
    found = result(spec)
    assert tokens(spec) == 1000 * 64 * 1024
    assert tokens_per_day(found, found.steps[1]) == pytest.approx(350 * 32 * 86400)


def test_name_storage_and_length_of_the_job_do_not_change_the_key() -> None:
    spec = v6e_job()
    storage = StorageSpec(path="gs://elsewhere", existing_run="new")
    same = spec.model_copy(update={"name": "other", "storage": storage})
    assert preflight_key(changed(same, training={"steps": 7, "save_every_steps": 3})) == preflight_key(spec)


@pytest.mark.parametrize(
    "sections",
    [
        {"training": {"global_batch": 64}},
        {"training": {"accumulation": 2}},
        {"training": {"compute_dtype": "bfloat16"}},
        {"training": {"attention": "fused"}},
        {"compiler": {"compiler_options": {"xla_new": 1}}},
        {"compiler": {"libtpu_args": {"megascale_debug_port": 8081}}},
        {"slices": {"topology": "2x8"}},
        {"mesh": {"fsdp": 8, "tensor": 2}},
        {"model": {"layers": 3}},
    ],
    ids=str,
)
def test_what_changes_the_program_or_its_compilation_changes_the_key(sections: dict[str, dict[str, Any]]) -> None:
    assert preflight_key(changed(v6e_job(), **sections)) != preflight_key(v6e_job())


def test_other_versions_change_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = preflight_key(v6e_job())
    monkeypatch.setattr("workloads.preflight_result.version", lambda package: "another")
    assert preflight_key(v6e_job()) != before


def test_every_recipe_is_of_slices_that_there_are_and_no_faster_than_their_peak() -> None:
    known, model = load_calibration(), load_preset("llama-3.1-8b").model
    for recipe in known.recipes:
        shape = resolve(recipe.generation, recipe.topology)
        tokens = recipe.sequences_per_chip * known.sequence_length
        peak_seconds = flops_per_token(model, known.sequence_length) * tokens / shape.peak_bf16_tflops_per_chip / 1e12
        assert 0.3 < peak_seconds / recipe.published_seconds < 0.5


def test_the_document_quotes_the_ratios() -> None:
    quoted = (ROOT / "docs" / "how-to" / "preflight.md").read_text()
    *most, last = [f"{recipe.ratio:.2f}" for recipe in load_calibration().recipes if recipe.ratio]
    assert f"{', '.join(most)} and {last}" in quoted
