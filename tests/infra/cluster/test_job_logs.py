"""Against a real server over connections that really break."""

import threading
from collections.abc import Callable, Generator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.cluster import job_logs
from infra.cluster.job_logs import WHOLE, Line, Reading, Which, Window, follow, leader
from infra.cluster.kubernetes import Watch
from tests.cli import api_objects
from tests.cli.api_objects import HOSTS, JOBSETS, PODS, stamped
from tests.cli.api_server import Broken, Played, client, playing
from tests.cli.standing import finish, running

LEADER, RESTARTED = "tiny-slice-0-0-0abcd", "tiny-slice-0-0-1abcd"


class Follower:
    """Follows in a thread; a test waits for lines."""

    def __init__(self, server: Played, which: Which, window: Window = WHOLE) -> None:
        self.lines: list[Line] = []
        self.outcome = ""
        self._changed = threading.Condition()
        arguments = (server, which, window)
        self.thread = threading.Thread(target=self._run, args=arguments, daemon=True)
        self.thread.start()

    @property
    def texts(self) -> list[str]:
        return [line.text for line in self.lines]

    def wait_for(self, reached: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(reached, 60), self.texts

    def join(self) -> str:
        self.thread.join(60)
        return self.outcome

    def _run(self, server: Played, which: Which, window: Window) -> None:
        ended = follow(client(server), "research", "tiny", which, self._tell, window)
        self.outcome = f"{ended.state} {ended.reason}"

    def _tell(self, line: Line) -> None:
        with self._changed:
            self.lines.append(line)
            self._changed.notify_all()


@pytest.fixture
def server() -> Generator[Played]:
    """With the job in it, whose four hosts run and have printed two lines each."""
    played = running()
    with playing(played):
        yield played


def test_repeated_steps_of_a_restarted_leader_are_shown_again(server: Played) -> None:
    follower = Follower(server, leader)
    follower.wait_for(lambda: len(follower.lines) == 2)
    for key in HOSTS:
        server.change(PODS, api_objects.pod(*key, "Failed", exit_code=1), "DELETED")
    server.logs.pop(LEADER)
    server.change(JOBSETS, api_objects.jobset(1))
    server.write(RESTARTED, *stamped(["tiny-slice-0-0 one", "tiny-slice-0-0 two", "three"], at=60))
    for key in HOSTS:
        server.change(PODS, api_objects.pod(*key, attempt=1, created=72))
    follower.wait_for(lambda: len(follower.lines) == 5)
    finish(server, attempt=1)
    assert follower.join() == "Completed AllJobsCompleted"
    assert follower.texts == ["tiny-slice-0-0 one", "tiny-slice-0-0 two"] * 2 + ["three"]
    assert [line.attempt for line in follower.lines] == [0, 0, 1, 1, 1]


def test_nothing_is_lost_or_repeated_when_connections_break(server: Played) -> None:
    lines = stamped([f"line {number % 4}" for number in range(60)], at=70, every=0.05)
    server.logs[LEADER] = lines
    server.breaks[LEADER] = [Broken(0), Broken(7, lines[7][:40]), Broken(20), Broken(30, lines[40][:5])]
    follower = Follower(server, leader)
    follower.wait_for(lambda: len(follower.lines) >= 60)
    finish(server)
    follower.join()
    assert follower.texts == [f"line {number % 4}" for number in range(60)]


def test_a_job_that_waits_is_followed_from_its_first_line(server: Played) -> None:
    for key in HOSTS:
        server.change(PODS, api_objects.pod(*key), "DELETED")
    follower = Follower(server, leader)
    server.change(PODS, api_objects.pod(0, 0, "Pending"))
    server.change(PODS, api_objects.pod(0, 0))
    finish(server)
    follower.join()
    assert follower.texts == ["tiny-slice-0-0 one", "tiny-slice-0-0 two"]


def test_a_job_that_is_deleted_has_ended(server: Played) -> None:
    follower = Follower(server, leader)
    follower.wait_for(lambda: len(follower.lines) == 2)
    for key in HOSTS:
        server.change(PODS, api_objects.pod(*key), "DELETED")
    server.logs.clear()
    server.change(JOBSETS, api_objects.jobset(), "DELETED")
    assert follower.join() == "Failed Deleted"


def test_a_job_that_is_deleted_before_it_is_watched_has_ended(server: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    class LateWatch(Watch):
        def run(self) -> None:
            for path, gone in [*((PODS, api_objects.pod(*key)) for key in HOSTS), (JOBSETS, api_objects.jobset())]:
                server.change(path, gone, "DELETED")
            super().run()

    monkeypatch.setattr(job_logs, "Watch", LateWatch)
    assert Follower(server, leader).join() == "Failed Deleted"


def test_a_job_that_is_not_there_cannot_be_followed(server: Played) -> None:
    with pytest.raises(LookupError, match="no JobSet other in namespace research"):
        follow(client(server), "research", "other", leader, print)


START = datetime(2026, 1, 5, 12, 0, 0, tzinfo=UTC)


def log(gaps: list[int]) -> list[str]:
    """Lines so many milliseconds apart; many of them say the same."""
    at, lines = START, list[str]()
    for place, gap in enumerate(gaps):
        at += timedelta(milliseconds=gap)
        lines.append(f"{at:%Y-%m-%dT%H:%M:%S.%f}000Z line {place % 3}")
    return lines


def connection(lines: list[str], reading: Reading, most: int) -> list[str]:
    """Return the lines of a connection that breaks after `most` lines."""
    query = reading.query()
    since = query.get("sinceTime", "")[:19]
    there = lines[-int(query["tailLines"]) :] if "tailLines" in query else lines
    is_new = reading.connection()
    return [line for line in [line for line in there if line[:19] >= since][:most] if is_new(line)]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    gaps=st.lists(st.sampled_from([0, 0, 1, 400, 2500]), max_size=40),
    breaks=st.lists(st.integers(0, 30), max_size=8),
    written=st.lists(st.integers(0, 40), max_size=8),
)
def test_each_line_is_read_once_and_in_order_over_broken_connections(
    gaps: list[int], breaks: list[int], written: list[int]
) -> None:
    lines, reading = log(gaps), Reading(Window())
    read: list[str] = []
    for most, there in zip(breaks, sorted(written), strict=False):
        read += connection(lines[:there], reading, most)
    read += connection(lines, reading, len(lines))
    assert read == lines


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(gaps=st.lists(st.sampled_from([1, 400, 2500]), min_size=1, max_size=40), tail=st.integers(1, 20))
def test_a_tail_stays_a_tail_over_a_break(gaps: list[int], tail: int) -> None:
    lines, reading = log(gaps), Reading(Window(tail_lines=tail))
    read = connection(lines, reading, tail)
    assert read + connection(lines, reading, len(lines)) == lines[-tail:]


def test_a_message_of_kubelet_is_read_once() -> None:
    reading = Reading(Window())
    assert connection(["unable to retrieve container logs"], reading, 9)
    assert not connection(["unable to retrieve container logs"], reading, 9)
