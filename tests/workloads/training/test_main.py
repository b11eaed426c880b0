import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workloads.jobs import small_job
from workloads.spec import ExitCode


def run(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "workloads.training"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_a_faulty_specification_ends_at_once_with_its_own_exit_code() -> None:
    done = run(JOB_SPEC="{}", RUN_ID="a", JOB_RESTART_ATTEMPT="0")
    assert done.returncode == ExitCode.INVALID_SPEC
    assert done.stderr.startswith("stopped: the job specification is not valid")


@pytest.mark.costs(cpu_seconds=8)
def test_a_job_for_other_slices_is_refused_before_anything_waits(tmp_path: Path) -> None:
    job = small_job(tmp_path, replica=2, fsdp=4)
    done = run(
        JOB_SPEC=job.model_dump_json(),
        RUN_ID="a",
        JOB_RESTART_ATTEMPT="2",
        TPU_WORKER_HOSTNAMES="host-a,host-b",
        TPU_WORKER_ID="1",
        MEGASCALE_NUM_SLICES="4",
    )
    assert done.returncode == ExitCode.INVALID_SPEC
    cause = "host host-b: expected 2 slices (MEGASCALE_NUM_SLICES), got 4; expected 1 hosts per slice"
    assert cause in done.stderr
    (path,) = (tmp_path / "failures" / "a").glob("host-b-2-*.json")
    record = json.loads(path.read_text())
    assert record["cause"].startswith(cause)
    assert (record["host"], record["code"]) == ("host-b", ExitCode.INVALID_SPEC)


@pytest.mark.costs(cpu_seconds=8)
def test_a_trainer_that_has_no_tpu_need_not_import_pallas() -> None:
    program = (
        "import sys, workloads.training.host; print('jax' in sys.modules, 'jax.experimental.pallas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout == "True False\n"
