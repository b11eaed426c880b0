"""Tests that a process that hangs ends, and reports its stacks."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from workloads.spec import ExitCode

BLOCKED = """
import json, sys, threading
from etils import epath
from workloads.training.runtime import Processes
from multislice_run.ending import Ending
from workloads.training.joining import hang
from multislice_run.attempt_facts import AttemptFacts
from workloads.training.watchdog import Watchdog

class Joined(Processes):
    def read_failure(self):
        return json.loads(sys.argv[2])

def blocked():
    threading.Event().wait()

processes = Joined(0, 1, "host-a")
start = AttemptFacts("run-1", 0, 0.0, None, 1, None)
with Watchdog(processes, Ending(epath.Path(sys.argv[1]), start, "host-a"), hang):
    processes.deadline.expect("step 3", 0.01)
    blocked()
"""


def recorded(folder: Path, published: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the record of a process that waits, when another one has published this failure."""
    command = [sys.executable, "-c", BLOCKED, str(folder), published]
    ended = subprocess.run(command, timeout=120, check=False)
    (path,) = folder.glob("failures/run-1/*.json")
    return ended.returncode, json.loads(path.read_text())


@pytest.mark.costs(cpu_seconds=10)
def test_what_does_not_end_in_time_is_named_with_the_line_that_waits(tmp_path: Path) -> None:
    code, record = recorded(tmp_path, "null")
    assert (code, record["cause"]) == (ExitCode.HANG, "step 3 did not end within 0.01 minutes")
    assert any("in blocked" in line for line in record["details"])


@pytest.mark.costs(cpu_seconds=20)
@pytest.mark.parametrize("published", ["[" * 100_000, '{"code": 0}'], ids=["brackets", "few"])
def test_no_process_goes_on_without_its_watchdog_after_a_stranger_published_a_failure(
    tmp_path: Path, published: str
) -> None:
    assert recorded(tmp_path, published)[0] == ExitCode.CRASH
