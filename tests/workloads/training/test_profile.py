"""Profiles on request, with two processes as on a cluster."""

import signal
from pathlib import Path

import pytest

from tests.processes import running_hosts
from tests.workloads.jobs import small_job
from workloads.progress import RunSummary, StepProgress

TIMEOUT_SECONDS = 240


@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_a_signal_to_one_host_makes_all_record_the_same_steps(tmp_path: Path) -> None:
    steps = 400
    job = small_job(tmp_path / "storage", replica=1, fsdp=4, hosts=2, steps=steps, save_every_steps=steps)
    environment = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compiled")}
    lines: list[str] = []
    with running_hosts(job, 0, tmp_path / "logs", TIMEOUT_SECONDS, environment) as hosts:
        for line in hosts.follow():
            lines.append(line)
            step = StepProgress.parse(line)
            if step and step.step == 3:
                hosts.all[1].process.send_signal(signal.SIGUSR1)
            if line.startswith("profile of steps"):
                hosts.stop(grace_seconds=20)
    (told,) = [line for line in lines if line.startswith("profile of steps")]
    assert not any(RunSummary.parse(line) for line in lines)
    (session,) = (tmp_path / "storage/runs/run-1/profiles/plugins/profile").iterdir()
    assert told.endswith(f"saved to {session}")
    recorded = sorted(path.name for path in session.iterdir() if path.name.endswith(".xplane.pb"))
    assert recorded == [f"{index:05d}-{host.address}.xplane.pb" for index, host in enumerate(hosts.all)]
    first, last = map(int, session.name.split("-")[1:])
    assert last - first == 4
