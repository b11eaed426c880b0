"""The preflight's entries in JAX's compilation cache, in separate processes, because JAX reads its settings once."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workloads.preflight.jobs import v6e_job

ROOT = Path(__file__).parents[3]

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
