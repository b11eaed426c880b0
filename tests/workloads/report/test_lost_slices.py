"""The report of a real job whose leading slice is killed and comes back, in processes."""

from pathlib import Path

import pytest
from etils import epath

from tests.workloads.hosts import first_code
from tests.workloads.report.runs import history
from tests.workloads.slices import Slices
from tests.workloads.training.test_group_loop import job_of
from workloads.report.absences import UNRECORDED
from workloads.report.command import find_run
from workloads.report.goodput import Cause, goodput
from workloads.report.page import page
from workloads.spec import ExitCode

STEPS = 60

SLOW_GRADIENTS = """
import time
from workloads.training.slice_program import SliceProgram
gradients = SliceProgram.gradients
def slow(self, *given):
    time.sleep(0.15)
    return gradients(self, *given)
SliceProgram.gradients = slow
"""
"""First code with which the devices, not the data, take time for a step."""


@pytest.mark.complete
def test_a_job_whose_leading_slice_was_killed_has_one_attempt_and_all_its_steps(tmp_path: Path) -> None:
    job = job_of(tmp_path / "storage", steps=STEPS)
    with Slices(job, tmp_path / "logs", first_code(tmp_path / "site", SLOW_GRADIENTS)) as slices:
        slices.until_step(8, seconds=300)
        led = int(next(line.split()[1] for line in slices.lines if " leads the group after view" in line))
        slices.kill(led)
        slices.start(led)
        slices.until(f"joined {led}", seconds=300)
        codes = slices.codes(300)
        changes = slices.changes
    assert {code for each in codes.values() for code in each} == {ExitCode.DONE}

    found = history(Path(find_run(epath.Path(tmp_path / "storage"))))
    (start,) = found.attempts
    assert (start.ending, found.notes) == ("DONE", ())
    # The killed leader had not written its last steps.
    assert [step.step for step in start.steps] == list(range(1, STEPS + 1))
    spent = goodput(found.attempts)
    lost_at = spent.absences[0].since
    (absence,) = spent.absences
    lost = next(change for change in changes if change.change == f"lost {led}")
    assert (absence.slice, absence.step, absence.cause) == (led, lost.step, UNRECORDED)
    assert absence.until
    parts = {part.cause: part.seconds for part in spent.parts}
    assert parts[Cause.IDLE] == pytest.approx(absence.seconds / 3, rel=0.01)
    # Only loading the rows of a step is time of the host, and not computing and exchanging its gradients.
    assert parts[Cause.PRODUCTIVE] > parts.get(Cause.INPUT, 0.0)
    assert start.began[1] < lost_at
    assert Cause.DOWN not in parts
    assert Cause.LOST not in parts
    assert f"slice {led} after step {lost.step}" in page(found)
