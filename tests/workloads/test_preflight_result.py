from pathlib import Path
from typing import Any

import pytest

from tests.workloads.preflight.jobs import v6e_job
from workloads.preflight_result import (
    PreflightResult,
    StepEstimate,
    cache_folder,
    cached,
    keep,
    preflight_key,
    tokens,
    tokens_per_day,
    versions,
)
from workloads.spec import CompilerSpec, JobSpec, StorageSpec


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


def with_training(spec: JobSpec, **changes: Any) -> JobSpec:
    return spec.model_copy(update={"training": spec.training.model_copy(update=changes)})


def test_what_is_kept_is_found_again(tmp_path: Path) -> None:
    spec = v6e_job()
    assert cached(spec, tmp_path) is None

    path = keep(result(spec), tmp_path)

    assert cached(spec, tmp_path) == result(spec)
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_was_cut_counts_as_none(tmp_path: Path) -> None:
    path = keep(result(v6e_job()), tmp_path)
    path.write_text(path.read_text()[:-20])

    assert cached(v6e_job(), tmp_path) is None


def test_a_cache_that_cannot_be_read_counts_as_none(tmp_path: Path) -> None:
    spec, no_folder = v6e_job(), tmp_path / "file"
    no_folder.touch()
    keep(result(spec), tmp_path).write_bytes(b"\xff")

    assert (cached(spec, tmp_path), cached(spec, no_folder)) == (None, None)


def test_the_estimate_to_quote_is_the_middle_one() -> None:
    found = result(v6e_job())

    assert found.estimate == found.steps[1]


def test_tokens_are_those_of_all_steps_and_of_all_chips() -> None:
    spec = with_training(v6e_job(), steps=1000, global_batch=64, sequence_length=1024)
    found = result(spec)

    assert tokens(spec) == 1000 * 64 * 1024
    assert tokens_per_day(found, found.steps[1]) == pytest.approx(350 * 32 * 86400)


def test_name_storage_and_length_of_the_job_do_not_change_the_key() -> None:
    spec = v6e_job()
    storage = StorageSpec(path="gs://elsewhere", existing_run="anew")
    same = with_training(spec.model_copy(update={"name": "other", "storage": storage}), steps=7, save_every_steps=3)

    assert preflight_key(same) == preflight_key(spec)


@pytest.mark.parametrize(
    "changes",
    [
        {"global_batch": 64},
        {"accumulation": 2},
        {"sequence_length": 64},
        {"compute_dtype": "bfloat16"},
        {"remat": "full"},
        {"attention": "fused"},
        {"gather_weights": "each-step"},
        {"ignored_token": 0},
        {"document_end": 1},
    ],
    ids=str,
)
def test_what_changes_the_program_changes_the_key(changes: dict[str, Any]) -> None:
    assert preflight_key(with_training(v6e_job(), **changes)) != preflight_key(v6e_job())


@pytest.mark.parametrize(
    "changes",
    [{"compile": "quick"}, {"compiler_options": {"xla_new": 1}}, {"libtpu_args": {"megascale_debug_port": 8081}}],
    ids=str,
)
def test_what_changes_the_compiler_changes_the_key(changes: dict[str, Any]) -> None:
    spec = v6e_job()
    changed = spec.model_copy(update={"compiler": CompilerSpec(**changes)})
    assert preflight_key(changed) != preflight_key(spec)


def test_slices_mesh_model_and_versions_change_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = v6e_job()
    others = [
        spec.model_copy(update={"slices": spec.slices.model_copy(update={"topology": "2x8"})}),
        spec.model_copy(update={"mesh": spec.mesh.model_copy(update={"fsdp": 8, "tensor": 2})}),
        spec.model_copy(update={"model": spec.model.model_copy(update={"layers": 3})}),
    ]
    keys = {preflight_key(each) for each in [spec, *others]}
    monkeypatch.setattr("workloads.preflight_result.version", lambda package: "another")

    assert len(keys | {preflight_key(spec)}) == 5


def test_the_folder_is_the_user_s_cache() -> None:
    assert cache_folder({"XDG_CACHE_HOME": "/cache"}) == Path("/cache/tpu-multislice/preflight")
    assert cache_folder({}) == Path.home() / ".cache/tpu-multislice/preflight"
