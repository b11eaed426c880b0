"""Real processes in a container of the sandbox, so that no other trainer of this machine is asked."""

import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox.node_agent.pod_process import Plan, PodProcess, Streams

ROOT = Path(__file__).parents[3]
LISTENING = """
import pathlib, signal, time
signal.signal(signal.SIGUSR1, lambda *_: pathlib.Path("asked").touch())
pathlib.Path("ready").touch()
time.sleep(600)
"""
DEAF = "import pathlib, time; pathlib.Path('ready').touch(); time.sleep(600)"


@contextmanager
def container(folder: Path, program: str) -> Generator[PodProcess]:
    """One in which `python -m workloads.training` is that program."""
    (folder / "workloads" / "training").mkdir(parents=True)
    (folder / "workloads" / "training" / "__main__.py").write_text(program)
    command, environment = [sys.executable, "-m", "workloads.training"], {"PATH": "/usr/bin:/bin"}
    process = PodProcess.start(Plan(command, environment, "host", folder, [], folder / "log"))
    try:
        deadline = time.monotonic() + 120
        while not (folder / "ready").exists():
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.02)
        yield process
    finally:
        process.signal(signal.SIGKILL)
        process.wait()


def asked(process: PodProcess, folder: Path) -> tuple[int, str]:
    """Exit code and words of the request."""
    with (folder / "said").open("w+") as said:
        streams = Streams(subprocess.DEVNULL, said.fileno(), said.fileno(), terminal=False)
        # As a script: the package of that name is the test's own here.
        request = str(ROOT / "workloads" / "training" / "profile_request.py")
        code = process.beside([sys.executable, request], streams).wait()
        said.seek(0)
        return code, said.read()


def test_the_trainer_of_the_container_is_asked(tmp_path: Path) -> None:
    with container(tmp_path, LISTENING) as process:
        assert asked(process, tmp_path) == (0, "")
        deadline = time.monotonic() + 60
        while not (tmp_path / "asked").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_trainer_that_does_not_listen_yet_is_left_alone(tmp_path: Path) -> None:
    with container(tmp_path, DEAF) as process:
        code, said = asked(process, tmp_path)
        assert code == 1
        assert "does not train yet; ask again when it has printed a step" in said
        with pytest.raises(subprocess.TimeoutExpired):
            subprocess.run(["tail", f"--pid={process.pid}", "-f", "/dev/null"], timeout=0.2, check=False)


def test_trainers_of_other_containers_are_no_trainer(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
    with container(one, LISTENING), container(two, DEAF) as process:
        assert "does not train yet" in asked(process, two)[1]
        assert not (one / "asked").exists()
    idle = PodProcess.start(Plan(["sleep", "600"], {"PATH": "/usr/bin:/bin"}, "host", two, [], two / "log"))
    try:
        assert "expected one trainer in this container, got 0" in asked(idle, two)[1]
    finally:
        idle.signal(signal.SIGKILL)
        idle.wait()
