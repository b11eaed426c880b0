"""Against a real HTTPS server with the sandbox's own certificates that plays recorded answers."""

import io
import json
import os
import signal
import ssl
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cli.halt import INTERRUPTED, Halt
from cli.up import follow
from cli.view.display import Display
from cli.view.snapshot import Snapshot
from cli.watch import Target, Watcher
from sandbox import certificates
from sandbox.site import Site, create
from tests.cli.view import recordings

LOG = [f"{line.line()}\n" for line in recordings.log(range(1, 201))]


class ApiServer(ThreadingHTTPServer):
    """Every watch ends at once; the first log breaks off within a line, later ones are whole."""

    daemon_threads = True

    def __init__(self, site: Site) -> None:
        super().__init__((site.address, site.api_server_port), Answer)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(site.pki / "apiserver.crt", site.pki / "apiserver.key")
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.logs = [[*LOG[:50], LOG[50][:9]], LOG]
        self.end_of_log = threading.Event()

    def answer(self, path: str) -> list[str]:
        if path.endswith("/log"):
            if len(self.logs) > 1:
                return self.logs.pop(0)
            self.end_of_log.set()
            return self.logs[0]
        if path.endswith("/pods"):
            phase, code = ("Succeeded", 0) if self.end_of_log.is_set() else ("Running", None)
            return [event("ADDED", recordings.pod(*host, phase, exit_code=code)) for host in recordings.HOSTS]
        if path.endswith("/workloads"):
            return [event("ADDED", recordings.workload(conditions=recordings.ADMITTED))]
        self.end_of_log.wait()
        return [event("MODIFIED", recordings.jobset(0, "Completed", ended=95))]


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, ApiServer)
        body = "".join(self.server.answer(self.path.partition("?")[0]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


def event(kind: str, found: dict[str, Any]) -> str:
    return json.dumps({"type": kind, "object": found}) + "\n"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = create(tmp_path)
    certificates.ensure(site)
    return site


@pytest.fixture
def api_server(site: Site) -> Generator[ApiServer]:
    server = ApiServer(site)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def display() -> Display:
    return Display(Console(file=io.StringIO()), recordings.applied())


@pytest.mark.usefixtures("api_server")
def test_the_job_is_followed_to_its_end_although_a_connection_breaks(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    console = Console(file=io.StringIO())
    shown = Display(console, recordings.applied())

    with Watcher(Target(site, "research", "tiny"), shown).watching() as watcher:
        assert shown.wait_until(lambda now: now.outcome is not None and now.leader() is not None, 20)
        watcher.drain_log(20)

    assert shown.snapshot.training == recordings.tell_log(Snapshot("", ()), recordings.log(range(1, 201))).training
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().count("step 10 of 200") == 1


def test_ctrl_c_closes_the_view_and_says_that_the_job_goes_on(site: Site) -> None:
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()

    with pytest.raises(Halt, match=r"the job goes on") as caught:
        follow(display(), Target(site, "research", "tiny"))

    assert caught.value.exit_status == INTERRUPTED
    timer.join()


def test_a_sandbox_that_died_is_told_instead_of_waiting_for_ever(site: Site) -> None:
    with pytest.raises(Halt, match=r"the sandbox stopped while the job was running; .*daemon\.log"):
        follow(display(), Target(site, "research", "tiny"))
