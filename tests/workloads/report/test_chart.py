from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from workloads.report.chart import nice_ticks, thin

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
