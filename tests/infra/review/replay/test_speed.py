"""How long a large replay takes, and how time grows."""

import pytest

from benchmarks.replays import measure

pytestmark = pytest.mark.complete


def test_a_month_of_a_large_cluster_takes_less_than_a_minute_and_a_gibibyte() -> None:
    found = measure(13_000, 10_000, 0.85)
    assert (found.jobs > 12_000, found.chips >= 10_000) == (True, True)
    assert found.cpu_seconds < 60
    assert found.mebibytes < 1024


def test_time_grows_with_the_number_of_jobs_and_not_with_its_square() -> None:
    small, large = measure(4000, 3100, 0.85), measure(13_000, 10_000, 0.85)
    assert large.cpu_seconds < 6 * small.cpu_seconds
