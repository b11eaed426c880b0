import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from sandbox.servers import ServerError, ServerProcess

ENVIRONMENT = {"PATH": os.environ["PATH"]}


def test_a_server_that_ends_tells_its_exit_code_and_the_end_of_its_log(tmp_path: Path):
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
    pid = int(ended.stdout)
    deadline = time.monotonic() + 30
    while running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not running(pid)


def running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
