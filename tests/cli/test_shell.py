"""The command in a process of its own, with a terminal or without, against a real server."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra.kubernetes import ApiServer, Json
from tests.infra.exec_server import CONTAINER, POD, TOKEN, exec_server

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
import urllib3
from cli.deployed import Deployed, JobPlace
from cli.halt import exit_status
from cli.shell import shell
from infra.kubernetes import ApiServer

url, ca, certificate, key, token, host, command, form = sys.argv[1:]
pool = urllib3.PoolManager(ca_certs=ca, cert_file=certificate, key_file=key)
api = ApiServer(url, pool, credentials=lambda: {"Authorization": token})
stack = Deployed("dev", {}, api, "", (JobPlace("train", "team", "team"),))
sys.exit(exit_status(lambda: shell(stack, None, host or None, command or None, as_json=form == "json")))
"""
JOBSET = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets/train"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads"
PODS = "/api/v1/namespaces/team/pods"


def running_pod(name: str, *, host: str) -> Json:
    replicated, slice_index, host_index = host.split("-")
    labels = {
        "jobset.sigs.k8s.io/replicatedjob-name": replicated,
        "jobset.sigs.k8s.io/job-index": slice_index,
        "batch.kubernetes.io/job-completion-index": host_index,
    }
    spec = {"containers": [{"name": CONTAINER}]}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"phase": "Running"}}


def jobset(*replicated: str) -> Json:
    spec = {"replicatedJobs": [{"name": name} for name in replicated]}
    return {"metadata": {"name": "train", "uid": "1"}, "spec": spec, "status": {}}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Generator[ApiServer]:
    objects: dict[str, Json] = {
        JOBSET: jobset("slice"),
        WORKLOADS: {"items": []},
        PODS: {"items": [running_pod(POD, host="slice-0-1")]},
    }
    with exec_server(tmp_path_factory.mktemp("site"), objects) as served:
        yield served


def line(api: ApiServer, *, host: str = "slice-0-1", command: str = "", form: str = "text") -> list[str]:
    given = api.pool.connection_pool_kw
    trust = [given["ca_certs"], given["cert_file"], given["key_file"]]
    return [sys.executable, "-c", PROGRAM, api.url, *trust, TOKEN, host, command, form]


def run(words: list[str], *, typed: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=ROOT, input=typed, capture_output=True, text=True, timeout=200, check=False)


def test_without_a_terminal_input_output_errors_and_exit_status_are_the_commands(api: ApiServer) -> None:
    ended = run(line(api, command="cat; echo err >&2; exit 3"), typed="typed")
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "typed", "err\n")


def test_as_json_all_of_it_is_one_object(api: ApiServer) -> None:
    ended = run(line(api, command="echo out; exit 3", form="json"))
    assert ended.returncode == 3
    assert re.sub(r"\s+", "", ended.stdout) == (
        f'{{"host":"slice-0-1","pod":"{POD}","exit_code":3,"output":"out\\n","errors":""}}'
    )


def test_a_host_that_does_not_run_is_told_with_those_that_do(api: ApiServer) -> None:
    ended = run(line(api, host="slice-7-0"))
    assert ended.returncode == 2
    assert "a host of job train that runs (slice-0-1), got 'slice-7-0'" in ended.stderr


@pytest.mark.parametrize(
    ("replicated", "leader"), [(("slice",), "slice-0-0"), (("head", "slice"), "head-0-0")], ids=["slices", "head"]
)
def test_unless_a_host_is_named_it_is_the_leader(tmp_path: Path, replicated: tuple[str, ...], leader: str) -> None:
    hosts = {leader, "slice-0-0", "slice-0-1"}
    pods = [running_pod(POD if host == leader else f"train-{host}", host=host) for host in hosts]
    objects = {JOBSET: jobset(*replicated), WORKLOADS: {"items": []}, PODS: {"items": pods}}
    with exec_server(tmp_path, objects) as api:
        ended = run(line(api, host="", command="echo here", form="json"))
    assert (ended.returncode, json.loads(ended.stdout)["host"], json.loads(ended.stdout)["pod"]) == (0, leader, POD)


def test_json_takes_a_command(api: ApiServer) -> None:
    ended = run(line(api, form="json"))
    assert ended.returncode == 1
    assert "expected --command with --json" in ended.stderr


@dataclass
class Terminal:
    """A person's terminal, seen from the other side."""

    ours: int
    theirs: int
    shown: str = ""

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def until(self, pattern: str, again: str = "") -> None:
        """Wait for what is shown; type `again` after each second in which nothing is."""
        deadline = time.monotonic() + 120
        while not re.search(pattern, self.shown):
            assert time.monotonic() < deadline, self.shown
            if select.select([self.ours], [], [], 1)[0]:
                self.shown += os.read(self.ours, 4096).decode()
            else:
                self.type(again)


@pytest.fixture
def terminal() -> Generator[Terminal]:
    ours, theirs = pty.openpty()
    yield Terminal(ours, theirs)
    os.close(ours)
    os.close(theirs)


def test_a_terminal_is_the_persons_own_keys_size_and_all_and_is_left_as_it_was(
    api: ApiServer, terminal: Terminal
) -> None:
    terminal.resize(100, 30)
    before = termios.tcgetattr(terminal.theirs)
    person = subprocess.Popen(
        line(api), cwd=ROOT, stdin=terminal.theirs, stdout=terminal.theirs, stderr=terminal.theirs
    )
    terminal.until(r"[#$] $")
    terminal.type("stty size\n")
    terminal.until(r"\b30 100\b")
    terminal.resize(120, 40)
    person.send_signal(signal.SIGWINCH)
    terminal.type("echo $((40+1)); sleep 600\n")
    # The shell may draw its line anew for the new size after the line was sent, and then begins no new one.
    terminal.until(r"41\r\n")
    # While the shell is starting `sleep`, nobody takes the signal.
    terminal.until(r"\^C[^$#]*[#$] $", again="\x03")
    terminal.type("stty size; echo $((40+2))\n")
    terminal.until(r"\b40 120\b[^$#]*42")
    terminal.type("exit 5\n")
    assert person.wait(120) == 5
    assert termios.tcgetattr(terminal.theirs) == before
