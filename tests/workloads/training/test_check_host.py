"""The slice check as a separate process, as in an init container."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workloads.spec import SliceSpec

pytestmark = pytest.mark.costs(cpu_seconds=15)

SLICES = SliceSpec.of_cpu(1, 1, 2)


def _checked(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    given = {
        "CHECKED_SLICES": SLICES.model_dump_json(),
        "JOB_FOLDER": str(folder),
        "RUN_ID": "run",
        "JOB_RESTART_ATTEMPT": "0",
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": "2",
    }
    environment = {**os.environ, **given, **variables}
    command = [sys.executable, "-m", "workloads.training.check_host"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_devices_that_compute_rightly_let_the_program_start(tmp_path: Path) -> None:
    ended = _checked(tmp_path)
    assert (ended.returncode, "all devices of the job compute correctly" in ended.stdout) == (0, True), ended.stderr


def test_a_host_with_too_few_devices_is_named_in_the_jobs_folder(tmp_path: Path) -> None:
    ended = _checked(tmp_path, JAX_NUM_CPU_DEVICES="1")
    assert ended.returncode
    (record,) = tmp_path.glob("failures/run/*.json")
    assert "expected 2 devices per host" in record.read_text()
