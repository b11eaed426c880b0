from datetime import UTC, datetime, timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cli.logs.reading import Reading, Window

START = datetime(2026, 1, 5, 12, 0, 0, tzinfo=UTC)


def log(gaps: list[int]) -> list[str]:
    """Lines so many milliseconds apart; many of them say the same."""
    at, lines = START, list[str]()
    for place, gap in enumerate(gaps):
        at += timedelta(milliseconds=gap)
        lines.append(f"{at:%Y-%m-%dT%H:%M:%S.%f}000Z line {place % 3}")
    return lines


def connection(lines: list[str], reading: Reading, most: int) -> list[str]:
    """What one connection tells that breaks after `most` lines."""
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
def test_however_connections_break_each_line_is_told_once_and_in_order(
    gaps: list[int], breaks: list[int], written: list[int]
) -> None:
    lines, reading = log(gaps), Reading(Window())
    told: list[str] = []
    for most, there in zip(breaks, sorted(written), strict=False):
        told += connection(lines[:there], reading, most)
    told += connection(lines, reading, len(lines))
    assert told == lines


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(gaps=st.lists(st.sampled_from([1, 400, 2500]), min_size=1, max_size=40), tail=st.integers(1, 20))
def test_a_tail_stays_a_tail_over_a_break(gaps: list[int], tail: int) -> None:
    lines, reading = log(gaps), Reading(Window(tail_lines=tail))
    told = connection(lines, reading, tail)
    assert told + connection(lines, reading, len(lines)) == lines[-tail:]


def test_lines_of_a_file_that_kubelet_began_anew_are_told() -> None:
    lines, reading = log([0, 10, 10, 10]), Reading(Window())
    assert connection(lines[:2], reading, 9) == lines[:2]
    assert connection(lines[2:], reading, 9) == lines[2:]


def test_a_word_of_kubelet_itself_is_told_once() -> None:
    reading = Reading(Window())
    assert connection(["unable to retrieve container logs"], reading, 9)
    assert not connection(["unable to retrieve container logs"], reading, 9)
