"""Tests that a process that hangs ends, and reports its stacks."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from workloads.spec import ExitCode

BLOCKED = """
import sys, threading
from etils import epath
from workloads.training.runtime import Deadline
from multislice_run.ending import Ending
from workloads.training.joining import hang
from workloads.training.runtime import Processes
from multislice_run.start import Start
from workloads.training.watchdog import Watchdog

def blocked():
    threading.Event().wait()

deadline = Deadline()
start = Start("run-1", 0, 0.0, None, 1, None)
with Watchdog(Processes(0, 1, "host-a", deadline), Ending(epath.Path(sys.argv[1]), start, "host-a"), hang):
    deadline.expect("step 3", 0.01)
    blocked()
"""


@pytest.mark.costs(cpu_seconds=10)
def test_what_does_not_end_in_time_is_named_with_the_line_that_waits(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", BLOCKED, str(tmp_path)], timeout=120, check=False)
    assert ended.returncode == ExitCode.HANG
    (path,) = tmp_path.glob("failures/run-1/*.json")
    record = json.loads(path.read_text())
    assert record["cause"] == "step 3 did not end within 0.01 minutes"
    assert any("in blocked" in line for line in record["details"])


FOREIGN = """
import json, sys, threading
from etils import epath
from workloads.training.runtime import Processes
from multislice_run.ending import Ending
from workloads.training.joining import hang
from multislice_run.start import Start
from workloads.training.watchdog import Watchdog

class Foreign(Processes):
    def read_failure(self):
        return json.loads(sys.argv[2])

start = Start("run-1", 0, 0.0, None, 1, None)
with Watchdog(Foreign(0, 1, "host-a"), Ending(epath.Path(sys.argv[1]), start, "host-a"), hang):
    threading.Event().wait()
"""


NO_CODE = '{"cause": "", "host": "", "code": "x"}'


@pytest.mark.costs(cpu_seconds=20)
@pytest.mark.parametrize(
    "published", ["[" * 100_000, "no JSON", "[1]", '{"code": 0}', NO_CODE], ids=["brackets", "text", "list", "few", "x"]
)
def test_no_process_goes_on_without_its_watchdog_after_a_stranger_published_a_failure(
    tmp_path: Path, published: str
) -> None:
    command = [sys.executable, "-c", FOREIGN, str(tmp_path), published]
    assert subprocess.run(command, timeout=60, check=False).returncode == ExitCode.CRASH
    assert [*tmp_path.glob("failures/run-1/*.json")]
