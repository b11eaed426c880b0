"""Against a real HTTPS server with the sandbox's own certificates that plays recorded answers."""

import io
import json
import os
import signal
import ssl
import threading
from collections.abc import Generator
from pathlib import Path

import pytest
from rich.console import Console

from cli.halt import INTERRUPTED, Halt
from cli.up import follow
from cli.view.display import Display
from cli.view.snapshot import Snapshot
from cli.watch import Target, Watcher
from sandbox import certificates
from sandbox.site import Site, create
from tests.cli import api_objects
from tests.cli.api_objects import JOBSETS, PODS, START, WORKLOADS, stamped
from tests.cli.api_server import Broken, Played, playing
from tests.cli.view import recordings
from workloads.spec import ExitCode

LEADER = "tiny-slice-0-0-0abcd"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = create(tmp_path)
    certificates.ensure(site)
    return site


@pytest.fixture
def api_server(site: Site) -> Generator[Played]:
    """With the job in it, whose leader's log breaks off within a line at first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(site.pki / "apiserver.crt", site.pki / "apiserver.key")
    server = Played((site.address, site.api_server_port), context)
    server.collections[JOBSETS] = [api_objects.jobset()]
    server.collections[WORKLOADS] = [api_objects.workload(conditions=api_objects.ADMITTED)]
    server.collections[PODS] = [api_objects.pod(*host) for host in api_objects.HOSTS]
    server.write(LEADER, *stamped(line.line() for line in recordings.log(range(1, 201))))
    server.breaks[LEADER] = [Broken(50, 30 * "x")]
    with playing(server):
        yield server


def finish(server: Played) -> None:
    """All hosts are done, and so is the job."""
    for host in api_objects.HOSTS:
        server.change(PODS, api_objects.pod(*host, "Succeeded", exit_code=0))
    server.change(JOBSETS, api_objects.jobset(0, "Completed", ended=95))


def display() -> Display:
    return Display(Console(file=io.StringIO()), recordings.applied())


def test_the_job_is_followed_to_its_end_although_a_connection_breaks(
    site: Site, api_server: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    console = Console(file=io.StringIO())
    shown = Display(console, recordings.applied())

    with Watcher(Target(site, "research", "tiny", site.buckets / "tiny"), shown).watching() as watcher:
        assert shown.wait_until(lambda now: now.training.step == 200, 60)
        finish(api_server)
        assert shown.wait_until(lambda now: now.outcome is not None, 60)
        watcher.drain_log(60)

    assert shown.snapshot.training == recordings.tell_log(Snapshot("", ()), recordings.log(range(1, 201))).training
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().count("step 10 of 200") == 1


def test_the_word_of_the_host_that_failed_first_tells_the_cause_of_a_restart(site: Site, api_server: Played) -> None:
    shown, target = display(), Target(site, "research", "tiny", site.buckets / "tiny")
    record = target.folder / "failures" / "uid-tiny" / f"tiny-slice-1-1.tiny-0-{START:.0f}.json"
    record.parent.mkdir(parents=True)
    word = {"host": "tiny-slice-1-1.tiny", "cause": "the step did not end", "code": ExitCode.HANG, "time": START + 60}
    record.write_text(json.dumps(word))

    with Watcher(target, shown).watching():
        for host, ended in (((0, 1), 61), ((1, 1), 64)):
            api_server.change(PODS, api_objects.pod(*host, "Failed", exit_code=ExitCode.HANG, ended=ended))
        assert shown.wait_until(lambda now: len(now.failed) == 2, 60)
        api_server.change(JOBSETS, api_objects.jobset(restarts=1))
        assert shown.wait_until(lambda now: now.restarts == 1, 60)

    cause = shown.snapshot.first_cause(0)
    assert cause
    assert (cause.host, cause.evidence) == ("slice-1-1", ("tiny-slice-1-1.tiny: the step did not end",))


def test_ctrl_c_closes_the_view_and_says_that_the_job_goes_on(site: Site) -> None:
    shown, target = display(), Target(site, "research", "tiny", site.buckets / "tiny")
    # Within the call, and before it looks whether the sandbox is alive.
    timer = threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()

    with pytest.raises(Halt, match=r"the job goes on") as caught:
        follow(shown, target)

    assert caught.value.exit_status == INTERRUPTED
    timer.join()


def test_a_sandbox_that_died_is_told_instead_of_waiting_for_ever(site: Site) -> None:
    with pytest.raises(Halt, match=r"the sandbox stopped while the job was running; .*daemon\.log"):
        follow(display(), Target(site, "research", "tiny", site.buckets / "tiny"))
