import os
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from tests.checkout import ROOT
from tests.workloads.jobs import changed, validated
from tests.workloads.preflight.jobs import v6e_job
from workloads.preflight import remedies
from workloads.preflight import result as parts
from workloads.preflight.__main__ import main
from workloads.preflight.result import preflight
from workloads.preflight_result import PreflightResult, cached, preflight_key
from workloads.spec import JobSpec

OF_CPU = changed(v6e_job(), slices={"generation": "cpu"})


@pytest.mark.costs(cpu_seconds=25)
@pytest.mark.usefixtures("compiled_quickly")
def test_a_job_that_fits_is_answered_in_full() -> None:
    recorded: list[str] = []
    found = preflight(v6e_job(), recorded.append, fill_cache=False, compare=True)
    assert recorded == ["the job as it is", "instead compile: quick"]
    assert found.alternative
    assert (found.alternative.compile, found.alternative.fits) == ("quick", True)
    assert found.alternative.seconds
    assert (found.fits, found.unsupported, found.remedies) == (True, None, ())
    assert found.peak_gib == found.needed_gib
    assert found.peak_gib
    assert found.peak_gib < 31.24
    assert found.usable_gib == 31.24
    assert found.estimate
    assert set(found.ici_sent_bytes) == {"all-gather", "all-reduce", "reduce-scatter"}
    assert set(found.dcn_sent_bytes) == {"ALL_REDUCE"}
    assert "training state" in {array.what for array in found.biggest_arrays}
    assert PreflightResult.model_validate_json(found.model_dump_json()) == found


@pytest.mark.costs(cpu_seconds=25)
@pytest.mark.usefixtures("compiled_quickly")
def test_a_job_that_does_not_fit_names_its_arrays_and_what_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remedies, "TRIES", 1)
    sizes = {"attention": "reference", "global_batch": 32 << 13, "sequence_length": 1024}
    spec = validated(changed(v6e_job(), training=sizes))
    found = preflight(spec, lambda compiling: None, fill_cache=False)
    assert (found.fits, found.steps, found.peak_gib) == (False, (), None)
    assert found.needed_gib
    assert found.needed_gib > 31.24
    assert found.biggest_arrays[0].gib > 4
    assert "8192,1024" in found.biggest_arrays[0].shape
    assert [(remedy.change, remedy.fits) for remedy in found.remedies] == [("training.attention: splash", False)]


def test_what_cannot_be_answered_says_why_and_nothing_else() -> None:
    found = preflight(OF_CPU, lambda compiling: None, fill_cache=False)
    assert found.unsupported
    assert "a program for 'cpu' cannot be compiled ahead of time; choose one of v4" in found.unsupported
    assert found == PreflightResult(
        key=preflight_key(OF_CPU),
        versions=found.versions,
        generation="cpu",
        topology="4x4",
        slices=2,
        chips=32,
        unsupported=found.unsupported,
    )


def test_a_fault_of_the_compiler_is_an_answer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(spec: JobSpec) -> None:
        raise jax.errors.JaxRuntimeError("INTERNAL: no")

    monkeypatch.setattr("workloads.preflight.result.compile_step", refuse)
    assert preflight(v6e_job(), lambda compiling: None, False).unsupported == (
        "the compiler refuses the step: INTERNAL: no"
    )


def test_the_process_keeps_its_result_where_the_preview_looks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "spec.json"
    written.write_text(OF_CPU.model_dump_json())
    assert main([str(written), "--keep", str(tmp_path / "kept")]) == 1
    recorded = capsys.readouterr()
    assert recorded.out == "the job as it is\n"
    assert "error: a program for 'cpu'" in recorded.err
    kept = cached(OF_CPU, tmp_path / "kept")
    assert kept
    assert kept.unsupported


def test_the_training_state_is_known_without_a_compilation() -> None:
    pytest.importorskip("libtpu")
    halved = changed(v6e_job(), mesh={"replica": 4, "fsdp": 8})
    assert parts.state_gib(halved) == pytest.approx(2 * parts.state_gib(v6e_job()), rel=0.05)


COMPILE_AS_THE_TRAINER = """
import sys
from pathlib import Path
from workloads.preflight.topology import describe_devices
from workloads.spec import JobSpec
from workloads.training.mesh import build_mesh
from workloads.training.step import Program

spec = JobSpec.model_validate_json(Path(sys.argv[1]).read_text())
Program(spec, build_mesh(spec.mesh, spec.slices, describe_devices(spec.slices, spec.libtpu_args))).compile_step()
"""


@pytest.mark.complete
def test_an_entry_has_the_key_of_the_trainer_s_own_compilation_from_wherever_it_runs(tmp_path: Path) -> None:
    pytest.importorskip("libtpu")
    written, cache, elsewhere = tmp_path / "spec.json", tmp_path / "cache", tmp_path / "image"
    written.write_text(v6e_job().model_dump_json())
    for package in ("multislice_run", "workloads"):
        shutil.copytree(ROOT / package, elsewhere / package)
    fill = ["-m", "workloads.preflight", str(written), "--keep", str(tmp_path), "--compile-cache", str(cache)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, *fill], cwd=ROOT, env=environment, check=True, capture_output=True)
    programs = {entry.name.split("-")[0] for entry in cache.iterdir()}
    first = {entry.name for entry in cache.glob("jit_local_step-*")}
    as_trainer = environment | {"JAX_COMPILATION_CACHE_DIR": str(cache), "PYTHONPATH": str(elsewhere)}
    command = [sys.executable, "-c", COMPILE_AS_THE_TRAINER, str(written)]
    subprocess.run(command, cwd=elsewhere, env=as_trainer, check=True, capture_output=True)
    assert {"jit_local_step", "jit__local_evaluation", "jit__initial"} <= programs
    assert len(first) == 1
    assert {entry.name for entry in cache.glob("jit_local_step-*")} == first
