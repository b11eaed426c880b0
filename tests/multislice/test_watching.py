import io
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from infra.job_logs import Line
from multislice.call import Call
from multislice.errors import CallGone
from multislice.submission import submit
from multislice.watching import Screen, Shown, cancel, watch
from tests.cli import api_objects
from tests.cli.api_objects import HOSTS, PODS, stamped
from tests.cli.api_server import Broken, Played, client, playing
from tests.cli.standing import finish, running
from tests.multislice.known import Objects, place
from tests.multislice.test_submission import PACKED, WISH

BEGINS, ENDS = "call x: the function begins", "call x: the function has ended"


def shown(which: Shown, capsys: pytest.CaptureFixture[str], *lines: tuple[str, str]) -> tuple[list[str], Screen]:
    screen = Screen("x", which)
    for host, text in lines:
        screen.line(Line(host, 0, "", text))
    return capsys.readouterr().out.splitlines(), screen


def test_the_leaders_lines_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    first = "slice-0-0"
    lines = [(first, text) for text in ("WARNING", BEGINS, "one", "[Gloo] Rank 0", "two", ENDS, "stopped")]
    found, screen = shown("leader", capsys, *lines)
    assert found == ["one", "two"]
    assert screen.ended.is_set()


def test_each_host_has_its_own_window_and_the_leaders_ends_the_wait(capsys: pytest.CaptureFixture[str]) -> None:
    one, two = "slice-0-0", "slice-1-0"
    lines = [(one, BEGINS), (two, "early"), (two, BEGINS), (one, "a"), (two, "b"), (two, ENDS), (two, "late")]
    found, screen = shown("all", capsys, *lines)
    assert found == ["[slice-0-0] a", "[slice-1-0] b"]
    assert not screen.ended.is_set()


def called(server: Played, folder: Path) -> Call:
    """A call whose JobSet is `tiny`."""
    known = submit(PACKED, WISH, place(folder, Objects()))
    return replace(known, id="tiny", namespace="research", place=replace(known.place, api=client(server)))


def prints(server: Played, host: tuple[int, int], *texts: str) -> str:
    pod = f"tiny-slice-{host[0]}-{host[1]}-0abcd"
    server.logs[pod] = stamped(["call tiny: the function begins", *texts, "call tiny: the function has ended"], at=60)
    return pod


def test_a_line_is_on_the_screen_while_the_call_still_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, pod, screen = running(), "tiny-slice-0-0-0abcd", io.BytesIO()
    server.logs[pod] = stamped(["call tiny: the function begins", "one"], at=60)
    # Keeps back what is not flushed, as the pipe of a program does that reads the output.
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(screen))
    with playing(server):
        waits = threading.Thread(target=watch, args=(called(server, tmp_path), "leader"))
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
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = running()
    for host in HOSTS:
        pod = prints(server, host, "one", "two", "three")
        server.breaks[pod] = [Broken(2)]
    finish(server)
    with playing(server):
        assert isinstance(watch(called(server, tmp_path), "all").error, CallGone)
    found = sorted(capsys.readouterr().out.splitlines())
    assert found == sorted(f"[slice-{a}-{b}] {word}" for a, b in HOSTS for word in ("one", "two", "three"))


def test_the_output_of_a_host_is_that_of_its_newest_pod(tmp_path: Path) -> None:
    server = running()
    prints(server, (1, 0), "before")
    server.collections[PODS].append(api_objects.pod(1, 0, attempt=1, created=72))
    server.logs["tiny-slice-1-0-1abcd"] = stamped(["WARNING", "call tiny: the function begins", "again"], at=80)
    with playing(server):
        call = called(server, tmp_path)
        assert call.logs("slice-1-0") == "again"
        with pytest.raises(CallGone, match="slice-7-0 of call tiny has no log"):
            call.logs("slice-7-0")


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
    other = submit(PACKED, WISH, call.place)
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

    monkeypatch.setattr("multislice.watching.follow", lambda *_: None)
    monkeypatch.setattr("multislice.watching.print_status", interrupted)
    with pytest.raises(KeyboardInterrupt):
        watch(call, "leader")
    assert not objects.found
