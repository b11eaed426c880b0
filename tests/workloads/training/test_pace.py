from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.training.pace import Pace, SaveTimer, compare
from workloads.training.runtime import Processes


def paces(*host_seconds: float) -> list[Pace]:
    return [Pace(f"host-{index}", 50, 1.0, seconds) for index, seconds in enumerate(host_seconds)]


def test_the_host_that_keeps_the_others_waiting_is_named() -> None:
    found = compare(paces(0.01, 0.3, 0.02, 0.01))
    assert (found.slowest, found.straggles, found.hosts) == ("host-1", True, 4)


def test_small_differences_make_no_straggler() -> None:
    assert not compare(paces(0.01, 0.05, 0.02)).straggles
    assert not compare(paces(0.5)).straggles


LIMIT = 600.0


class Counted(Processes):
    asked: list[str] = []

    def share(self, key: str, decide: Callable[[], Any]) -> Any:
        self.asked.append(key)
        return decide()


def saves(seconds_of: Callable[[int], float], steps: int) -> tuple[list[float], int]:
    """Return the times between saves if step n takes seconds_of(n), and how often the hosts communicated."""
    now, last, gaps = 0.0, 0.0, list[float]()
    processes = Counted(0, 1, "host-0")
    processes.asked.clear()
    timer = SaveTimer(LIMIT, processes, 0, lambda: now)
    for step in range(1, steps):
        now += seconds_of(step)
        if timer.is_up(step):
            gaps.append(now - last)
            last = now
            timer.restart(step)
    return gaps, len(processes.asked)


@pytest.mark.costs(cpu_seconds=15)
@given(st.floats(0.01, 200), st.floats(0.5, 2))
def test_saves_are_never_further_apart_than_the_limit_while_the_pace_stays_within_its_half(
    pace: float, change: float
) -> None:
    gaps, _ = saves(lambda step: pace * (change if step % 40 > 20 else 1), int(3 * LIMIT / pace) + 50)
    assert gaps
    assert max(gaps) <= LIMIT + 1e-6
    assert min(gaps) >= LIMIT - 6 * pace


def test_hosts_talk_a_few_times_between_two_saves_and_not_at_every_step() -> None:
    gaps, asked = saves(lambda _: 0.1, 20_000)
    assert len(gaps) == 3
    assert asked < 20 * len(gaps)


def test_steps_longer_than_the_limit_are_all_saved() -> None:
    assert len(saves(lambda _: 2 * LIMIT, 6)[0]) == 5


def test_other_hosts_follow_the_leader_whatever_their_clock_says() -> None:
    class Follower(Processes):
        def share(self, key: str, decide: Callable[[], Any]) -> Any:
            return {"save/6": 8, "save/8": 8}[key]

    looked_at_once = iter([0.0])
    timer = SaveTimer(LIMIT, Follower(1, 2, "host-1"), 5, lambda: next(looked_at_once))
    assert [timer.is_up(step) for step in (6, 7, 8)] == [False, False, True]
