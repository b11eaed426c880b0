"""Reads that are ahead of their use, in threads or in a simulation of them."""

import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from workloads.data.token_folder import DataFault
from workloads.spec import ExitCode
from workloads.training import read_ahead
from workloads.training.failures import DataUnreadable, exit_code
from workloads.training.read_ahead import ReadAhead, read_patiently


@pytest.fixture(autouse=True)
def without_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "FIRST_WAIT_SECONDS", 0.001)
    monkeypatch.setattr(read_ahead, "MAX_WAIT_SECONDS", 0.002)


@contextmanager
def reader[T](
    read: Callable[[int], T], depth: int = 3, period: int = 100, patience: float = 60, threads: int = 1
) -> Generator[ReadAhead[T]]:
    with ThreadPoolExecutor(threads) as pool:
        yield ReadAhead(read, "rows", depth, period, patience, pool)


def test_numbers_are_read_once_and_not_beyond_the_depth() -> None:
    seen: list[int] = []
    with reader(lambda number: seen.append(number) or -number) as rows:
        assert [rows.take(number) for number in (5, 6, 7)] == [-5, -6, -7]
    assert seen == [5, 6, 7, 8, 9, 10]


def test_as_many_numbers_are_read_at_the_same_time_as_there_are_threads() -> None:
    together = threading.Barrier(4, timeout=30)
    with reader(lambda number: together.wait() and number, threads=4) as rows:
        # The barrier opens when four threads wait at it.
        rows.take(0)


def test_a_jump_forgets_what_was_not_read_yet() -> None:
    seen: list[int] = []
    with reader(lambda number: seen.append(number) or number) as rows:
        assert [rows.take(number) for number in (0, 50)] == [0, 50]
    assert len(seen) <= 4 + 4
    assert seen[-4:] == [50, 51, 52, 53]


def test_after_the_last_number_comes_the_first() -> None:
    seen: list[int] = []
    with reader(lambda number: seen.append(number) or number, depth=9, period=2) as rows:
        rows.expect(0)
        assert [rows.take(number) for number in (0, 1, 0, 1)] == [0, 1, 0, 1]
    assert seen == [0, 1, 0, 1, 0]


class Failing:
    """Storage that fails a number of times and then works."""

    def __init__(self, times: int, error: Exception):
        self.times, self.error = times, error

    def __call__(self, number: int = 0) -> int:
        self.times -= 1
        if self.times >= 0:
            raise self.error
        return number


def test_a_read_that_fails_is_tried_again_until_it_works(capsys: pytest.CaptureFixture[str]) -> None:
    with reader(Failing(20, RuntimeError("503")), threads=2) as rows:
        assert rows.take(7) == 7
    assert capsys.readouterr().out == "data: rows cannot be read, trying again: RuntimeError: 503\n"


def test_storage_that_stays_away_ends_the_job_with_the_last_error() -> None:
    with reader(Failing(1 << 30, OSError("no route to host")), patience=0.1, threads=2) as rows:
        with pytest.raises(
            DataUnreadable, match=r"rows cannot be read for 0.00167 minutes, the last error was OSError: no route"
        ) as caught:
            rows.take(7)
        rows.close()
    assert (exit_code(caught.value), caught.value.agreed) == (ExitCode.CRASH, False)


def test_storage_that_does_not_answer_is_said_so() -> None:
    answer = threading.Event()
    with reader(lambda number: answer.wait() and number, patience=0.05) as rows:
        with pytest.raises(DataUnreadable, match="storage gave no answer"):
            rows.take(0)
        answer.set()


def test_a_file_that_is_gone_is_not_waited_for() -> None:
    gone = Failing(1 << 30, FileNotFoundError("tokens-00001.bin"))
    with reader(gone) as rows, pytest.raises(DataUnreadable, match="FileNotFoundError: tokens-00001.bin"):
        rows.take(0)


def test_data_is_opened_in_spite_of_an_outage_and_refused_at_once_when_it_is_damaged() -> None:
    assert read_patiently(Failing(3, OSError("503")), "tokens") == 0
    damaged = Failing(1 << 30, DataFault("another size"))
    with pytest.raises(DataFault, match="another size"):
        read_patiently(damaged, "tokens")
    assert damaged.times == (1 << 30) - 1
