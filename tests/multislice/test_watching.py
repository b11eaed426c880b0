import io
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from infra.cluster.job_logs import Line
from multislice.call import Call
from multislice.errors import CallGone
from multislice.function import Screen, cancel, watch
from multislice.submission import submit
from tests.cli import api_objects
from tests.cli.api_objects import HOSTS, PODS, stamped
from tests.cli.api_server import Broken, Played, client, playing
from tests.cli.standing import finish, running
from tests.multislice.known import PACKED, REQUEST, Objects

BEGINS, ENDS = "call x: the function begins", "call x: the function has ended"


def test_each_host_has_its_own_window_and_the_leaders_ends_the_wait(capsys: pytest.CaptureFixture[str]) -> None:
    screen, one, two = Screen("x", "all"), "slice-0-0", "slice-1-0"
    lines = [(one, BEGINS), (two, "early"), (two, BEGINS), (one, "a"), (two, "b"), (two, ENDS), (two, "late")]
    for host, text in lines:
        screen.line(Line(host, 0, "", text))
    assert capsys.readouterr().out.splitlines() == ["[slice-0-0] a", "[slice-1-0] b"]
    assert not screen.ended.is_set()
    screen.line(Line(one, 0, "", ENDS))
    assert screen.ended.is_set()


@contextmanager
def called(server: Played, call: Call) -> Generator[Call]:
    """As if the server had the call's JobSet, which is `tiny`."""
    with playing(server):
        yield replace(call, id="tiny", connection=replace(call.connection, api=client(server)))


def prints(server: Played, host: tuple[int, int], *texts: str) -> str:
    pod = f"tiny-slice-{host[0]}-{host[1]}-0abcd"
    server.logs[pod] = stamped(["call tiny: the function begins", *texts, "call tiny: the function has ended"], at=60)
    return pod


def test_a_line_is_on_the_screen_while_the_call_still_runs(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    server, pod, screen = running(), "tiny-slice-0-0-0abcd", io.BytesIO()
    server.logs[pod] = stamped(["call tiny: the function begins", "one"], at=60)
    # Keeps back what is not flushed, as the pipe of a program does that reads the output.
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(screen))
    with called(server, call) as tiny:
        waits = threading.Thread(target=watch, args=(tiny, "leader"))
        waits.start()
        deadline = time.monotonic() + 30
        while not screen.getvalue() and time.monotonic() < deadline:
            time.sleep(0.02)
        seen, runs = screen.getvalue(), waits.is_alive()
        server.write(pod, *stamped(["two", "call tiny: the function has ended"], at=70))
        finish(server)
        waits.join()
    assert (seen, runs) == (b"one\n", True)
    assert screen.getvalue() == b"one\ntwo\n"


def test_whoever_waits_is_shown_all_hosts_over_a_connection_that_breaks(
    call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    server = running()
    for host in HOSTS:
        pod = prints(server, host, "one", "two", "three")
        server.breaks[pod] = [Broken(2)]
    finish(server)
    with called(server, call) as tiny:
        assert isinstance(watch(tiny, "all").error, CallGone)
    found = sorted(capsys.readouterr().out.splitlines())
    assert found == sorted(f"[slice-{a}-{b}] {word}" for a, b in HOSTS for word in ("one", "two", "three"))


def test_the_output_of_a_host_is_that_of_its_newest_pod(call: Call) -> None:
    server = running()
    prints(server, (1, 0), "before")
    server.collections[PODS].append(api_objects.pod(1, 0, attempt=1, created=72))
    server.logs["tiny-slice-1-0-1abcd"] = stamped(["WARNING", "call tiny: the function begins", "again"], at=80)
    with called(server, call) as tiny:
        assert tiny.logs("slice-1-0") == "again"
        with pytest.raises(CallGone, match="slice-7-0 of call tiny has no log"):
            tiny.logs("slice-7-0")


def test_a_call_that_has_ended_is_not_cancelled(
    call: Call, objects: Objects, capsys: pytest.CaptureFixture[str]
) -> None:
    next(iter(objects.found.values()))["status"] = {"terminalState": "Completed"}
    cancel([call])
    assert objects.found
    assert f"call {call.id} has ended (completed); multislice.attach(" in capsys.readouterr().err


def test_a_call_that_cannot_be_cancelled_is_reported_and_does_not_keep_others_from_it(
    call: Call, objects: Objects, capsys: pytest.CaptureFixture[str]
) -> None:
    other = submit(PACKED, REQUEST, call.connection)
    objects.fails[call.id] = OSError("no route")
    cancel([call, other])
    assert [path.rpartition("/")[2] for path in objects.found] == [call.id]
    first, second = capsys.readouterr().err.splitlines()
    assert f"call {call.id} is not cancelled and may still run" in first
    assert f"end it with multislice.attach({call.id!r}, stack='local').cancel()" in first
    assert f"call {other.id} is cancelled" in second


def test_a_second_interruption_says_how_to_find_what_is_not_cancelled(
    call: Call, objects: Objects, capsys: pytest.CaptureFixture[str]
) -> None:
    objects.fails["DELETE"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        cancel([call])
    said = f"call {call.id} may still run; find it with multislice.attach({call.id!r}, stack='local')"
    assert said in capsys.readouterr().err


def test_an_interrupted_wait_cancels_the_call(call: Call, objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("multislice.function.follow", lambda *_: None)
    monkeypatch.setattr("multislice.function.print_status", interrupted)
    with pytest.raises(KeyboardInterrupt):
        watch(call, "leader")
    assert not objects.found
