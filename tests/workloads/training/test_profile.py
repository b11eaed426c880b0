"""Profiles on request, with two processes as on a cluster, and profiles that a stop cuts short."""

from pathlib import Path

import jax.numpy as jnp
import pytest
from etils import epath

from tests.processes import running_hosts
from tests.workloads.hosts import TIMEOUT_SECONDS
from tests.workloads.jobs import small_job
from tests.workloads.training.running import ALONE
from workloads.progress import RunSummary, StepProgress
from workloads.spec import PROFILE_REQUEST
from workloads.training.failures import Preempted
from workloads.training.profile import StepProfiler


@pytest.mark.complete
@pytest.mark.timeout(TIMEOUT_SECONDS)
def test_a_request_in_the_runs_folder_makes_all_hosts_record_the_same_steps(tmp_path: Path) -> None:
    steps = 100_000
    job = small_job(tmp_path / "storage", replica=1, fsdp=4, hosts=2, steps=steps, save_every_steps=steps)
    lines: list[str] = []
    request = tmp_path / "storage/runs/run-1" / PROFILE_REQUEST
    with running_hosts(job, 0, tmp_path / "logs", TIMEOUT_SECONDS, {}) as hosts:
        for line in hosts.follow():
            lines.append(line)
            step = StepProgress.parse(line)
            if step and step.step == 3:
                request.parent.mkdir(parents=True)
                request.write_text("")
            if line.startswith("profile of steps"):
                hosts.stop(grace_seconds=20)
    (message,) = [line for line in lines if line.startswith("profile of steps")]
    assert not any(RunSummary.parse(line) for line in lines)
    (session,) = (tmp_path / "storage/runs/run-1/profiles/plugins/profile").iterdir()
    assert not request.exists()
    assert message.endswith(f"saved to {session}")
    recorded = sorted(path.name for path in session.iterdir() if path.name.endswith(".xplane.pb"))
    assert recorded == [f"{index:05d}-{host.address}.xplane.pb" for index, host in enumerate(hosts.all)]
    first, last = map(int, session.name.split("-")[1:])
    assert last - first == 4


def stopped_in_step_3(folder: Path, stop: Exception) -> None:
    with StepProfiler((2, 9), epath.Path(folder), 0, ALONE) as profiler:
        for step in (1, 2, 3):
            profiler.before(step)
            jnp.arange(step).block_until_ready()
            if step == 3:
                raise stop
            profiler.after(step)


@pytest.mark.parametrize("stop", [Preempted("SIGTERM"), ValueError("no such row")])
def test_what_was_recorded_until_a_stop_is_kept(
    stop: Exception, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(type(stop)):
        stopped_in_step_3(tmp_path, stop)
    session = tmp_path / "profiles" / "plugins" / "profile" / "0-2-3"
    assert (session / "00000-host-0.xplane.pb").stat().st_size > 0
    assert f"profile of steps 2 to 3 saved to {session}" in capsys.readouterr().out


def test_storage_that_takes_no_profile_does_not_hide_why_training_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "profiles").write_text("a file in the way")
    with pytest.raises(Preempted):
        stopped_in_step_3(tmp_path, Preempted("SIGTERM"))
    assert "profile of steps 2 to 3 is lost: " in capsys.readouterr().out
