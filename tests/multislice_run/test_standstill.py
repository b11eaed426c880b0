"""Jobs in which every host waits for others."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from multislice_run.exit_codes import ExitCode
from multislice_run.standstill import MainThread
from tests.workloads.hosts import wait_until

LOOK_SECONDS = 0.1


def looks(act: Callable[[], object]) -> list[bool]:
    """Return whether the main thread, in which `act` runs, had moved at each look."""
    main, found, done = MainThread(), list[bool](), threading.Event()

    def look() -> None:
        while not done.wait(LOOK_SECONDS):
            found.append(main.has_moved())

    looking = threading.Thread(target=look)
    looking.start()
    act()
    done.set()
    looking.join()
    assert len(found) > 3
    # The first look only asks.
    return found[1:]


def test_a_thread_that_waits_in_one_call_stands_still() -> None:
    assert not any(looks(lambda: threading.Event().wait(10 * LOOK_SECONDS)))


def test_a_thread_that_always_waits_in_the_same_call_moves() -> None:
    waits = [threading.Event().wait] * 100

    def loop() -> None:
        for wait in waits:
            wait(LOOK_SECONDS / 10)

    # A loaded machine may keep the thread from its next call.
    found = looks(loop)
    assert found.count(True) > len(found) / 2


@pytest.mark.parametrize("file", ["/site-packages/jax/_src/compiler.py", "/lib/python3.13/subprocess.py"])
def test_a_thread_that_waits_for_a_compiler_or_a_process_works(file: str) -> None:
    code = compile(f"import time\ntime.sleep({10 * LOOK_SECONDS})", file, "exec")
    assert all(looks(lambda: exec(code)))


PROGRAM = """
import sys, threading, time
from pathlib import Path
from multislice_run.attempt import Attempt

def waits():
    threading.Event().wait()

def works():
    while not Path(sys.argv[1]).exists():
        time.sleep(0.01)

with Attempt(steps=9, hang_minutes=0.02) as attempt:
    print("begun", flush=True)
    if len(sys.argv) > 1:
        works()
    waits()
"""


@pytest.fixture
def start(tmp_path: Path) -> Generator[Callable[..., subprocess.Popen[str]]]:
    """Yield a function that starts a host of a job of two hosts."""
    with ExitStack() as stack:

        def start(worker: int, *arguments: str) -> subprocess.Popen[str]:
            position = {"TPU_WORKER_HOSTNAMES": "host-a,host-b", "TPU_WORKER_ID": str(worker)}
            job = {"JOB_FOLDER": str(tmp_path), "RUN_ID": "first", "JOB_RESTART_ATTEMPT": "0"}
            command = [sys.executable, "-c", PROGRAM, *arguments]
            process = subprocess.Popen(
                command, env={**os.environ, **job, **position}, stderr=subprocess.PIPE, text=True
            )
            stack.callback(process.kill)
            return process

        yield start


def records(folder: Path) -> dict[str, dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in (folder / "failures" / "first").iterdir()]
    return {record["host"]: record for record in found}


def test_hosts_that_all_wait_end_as_a_hang_and_show_where(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    for process in [start(0), start(1)]:
        _, said = process.communicate(timeout=120)
        assert process.returncode == ExitCode.HANG
        assert "stopped: no host has moved for 0.02 minutes, because each waits for others" in said
        assert "in waits" in said
    assert {host: record["code"] for host, record in records(tmp_path).items()} == {"host-a": 24, "host-b": 24}
    assert all(any("in waits" in line for line in record["details"]) for record in records(tmp_path).values())


def test_a_host_that_works_keeps_those_that_wait_for_it(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    done = tmp_path / "done"
    waiting, working = start(0), start(1, str(done))
    still = tmp_path / "standstill" / "first" / "0" / "0-still"
    wait_until(still.exists, 120)
    time.sleep(3)
    assert (waiting.poll(), working.poll()) == (None, None)
    done.touch()
    assert [process.wait(120) for process in (waiting, working)] == [ExitCode.HANG] * 2


def test_a_host_that_never_comes_is_named(tmp_path: Path, start: Callable[..., subprocess.Popen[str]]) -> None:
    assert start(0).wait(120) == ExitCode.HANG
    (record,) = records(tmp_path).values()
    assert record["cause"].endswith("slice 0 host 1 has not begun, or has ended")
