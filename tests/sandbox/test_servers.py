import os
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from sandbox.servers import ServerError, ServerProcess, Supervision, holds_within
from tests.sandbox.node_agent.pods import runs

ENVIRONMENT = {"PATH": os.environ["PATH"]}


def test_the_error_of_an_ended_server_has_its_exit_code_and_the_end_of_its_log(tmp_path: Path):
    server = ServerProcess.start("demo", ["sh", "-c", "echo port taken; exit 3"], tmp_path / "log", ENVIRONMENT)
    with pytest.raises(ServerError, match=r"demo ended with exit code 3; .*\n  port taken"):
        server.wait_ready(lambda: False, 10)


def test_a_server_that_ignores_sigterm_is_killed(tmp_path: Path):
    ready = tmp_path / "ready"
    server = ServerProcess.start(
        "demo", ["sh", "-c", f"trap '' TERM; touch {ready}; sleep 60"], tmp_path / "log", ENVIRONMENT
    )
    server.wait_ready(ready.exists, 10)
    server.stop(0.2)
    assert not server.running()


def test_a_server_dies_with_its_parent(tmp_path: Path):
    parent = (
        "import os, pathlib, psutil, signal, sys\n"
        "from sandbox.servers import ServerProcess\n"
        "server = ServerProcess.start('demo', ['sleep', '60'], pathlib.Path(sys.argv[1]), dict(os.environ))\n"
        "server.wait_ready(lambda: psutil.Process(server.process.pid).name() == 'sleep', 10)\n"
        "print(server.process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", parent, str(tmp_path / "log")], capture_output=True, text=True)
    assert holds_within(30, lambda: not runs(int(ended.stdout)))


@pytest.fixture
def clock() -> list[float]:
    """What the supervision takes for the time."""
    return [0.0]


@pytest.fixture
def supervision(tmp_path: Path, clock: list[float]) -> Generator[Supervision]:
    supervision = Supervision(tmp_path / "servers", clock=lambda: clock[0])
    yield supervision
    supervision.stop()


def kept(supervision: Supervision, tmp_path: Path, command: str) -> None:
    supervision.keep(ServerProcess.start("demo", ["sh", "-c", command], tmp_path / "log", ENVIRONMENT))


def pid(supervision: Supervision) -> int:
    return int((supervision.pids / "demo").read_text())


def killed(supervision: Supervision) -> int:
    """Kills the server and returns when that is seen."""
    os.kill(pid(supervision), signal.SIGKILL)
    return ended(supervision)


def ended(supervision: Supervision) -> int:
    """Pid of the server when it has ended."""
    ended = pid(supervision)
    assert holds_within(10, lambda: not runs(ended), 0.01)
    return ended


def test_a_server_that_ends_is_restarted_at_once_and_its_pid_file_is_replaced_as_a_whole_and_removed_with_it(
    supervision: Supervision, tmp_path: Path
):
    kept(supervision, tmp_path, "sleep 60")
    with (supervision.pids / "demo").open() as before:
        ended = killed(supervision)
        supervision.tend()
        assert int(before.read()) == ended != pid(supervision)
    os.kill(pid(supervision), 0)
    supervision.stop()
    assert [*supervision.pids.iterdir()] == []


def test_a_server_that_ends_again_waits_longer_each_time(supervision: Supervision, tmp_path: Path, clock: list[float]):
    kept(supervision, tmp_path, "sleep 60")
    for delay in (0, 1, 2, 4):
        ended = killed(supervision)
        supervision.tend()
        clock[0] += delay - 0.1
        supervision.tend()
        assert (pid(supervision) == ended) == (delay > 0)
        clock[0] += 0.1
        supervision.tend()
        assert pid(supervision) != ended


def test_a_server_that_cannot_stay_up_is_given_up_with_the_end_of_its_log(
    supervision: Supervision, tmp_path: Path, clock: list[float]
):
    kept(supervision, tmp_path, "echo port taken; exit 3")

    def tend_for_40_seconds() -> None:
        for _ in range(10):
            ended(supervision)
            supervision.tend()
            clock[0] += 4
            supervision.tend()

    with pytest.raises(ServerError, match=r"demo keeps ending: 5 times .* exit code 3; .*\n  port taken"):
        tend_for_40_seconds()


def test_ends_of_long_ago_do_not_count(supervision: Supervision, tmp_path: Path, clock: list[float]):
    kept(supervision, tmp_path, "sleep 60")
    for _ in range(8):
        ended = killed(supervision)
        supervision.tend()
        assert pid(supervision) != ended
        clock[0] += 61
