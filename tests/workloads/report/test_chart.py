import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.report.chart import Line, amount, line_chart, nice_ticks, thin

values = st.floats(-1e9, 1e9, allow_subnormal=False)


@given(values, values)
def test_ticks_are_few_and_hold_all_values(one: float, other: float) -> None:
    low, high = min(one, other), max(one, other)
    ticks = nice_ticks(low, high)
    slack = 1e-6 * max(abs(low), abs(high))
    assert ticks[0] <= low + slack
    assert ticks[-1] >= high - slack
    assert 2 <= len(ticks) <= 9
    assert all(a < b for a, b in pairwise(ticks))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300), st.integers(10, 50))
def test_a_long_line_keeps_its_peaks_and_dips(heights: list[float], limit: int) -> None:
    piece = [(float(place), height) for place, height in enumerate(heights)]
    kept = thin(piece, limit)
    assert len(kept) <= limit + 2
    assert kept == sorted(set(kept))
    assert min(height for _, height in kept) == min(heights)
    assert max(height for _, height in kept) == max(heights)


def test_amounts_are_short() -> None:
    small = {0.0: "0", 0.00123: "0.00123", 3.14159: "3.142", 9999.0: "9999"}
    texts = small | {12_345.0: "12.35k", 1.5e6: "1.5M", 2e9: "2G", 1e12: "1T"}
    assert {value: amount(value) for value in texts} == texts


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [(0.4921, 60.2, ["0", "20", "40", "60", "80"]), (1, 3, ["1", "2", "3"]), (7, 7, ["2", "4", "6", "8", "10", "12"])],
)
def test_the_horizontal_axis_has_whole_numbers_at_round_distances(low: float, high: float, labels: list[str]) -> None:
    drawn = line_chart("Loss", "minute", [Line("loss", "c1", [[(low, 5.0), (high, 3.0)]])])
    assert re.findall(r'class="tick" text-anchor="middle">([^<]+)<', drawn) == labels
