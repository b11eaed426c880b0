"""Profiles that a stop cuts short."""

from pathlib import Path

import jax.numpy as jnp
import pytest
from etils import epath

from tests.workloads.training.running import ALONE
from workloads.training.failures import Preempted
from workloads.training.profile import StepProfiler


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
