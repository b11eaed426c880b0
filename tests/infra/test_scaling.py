from math import isclose

from hypothesis import given, settings
from hypothesis import strategies as st

from infra.plan import ScaledStep
from tests.infra.preflight_rows import design, fitting


def _scaled(slices: int, exposed: float, dcn: float) -> ScaledStep:
    made = fitting(design(slices=slices), exposed=exposed, dcn=dcn)
    assert made.step
    return ScaledStep(made.design, made.step)


@settings(deadline=None)
@given(st.integers(2, 8), st.integers(1, 500), st.floats(0, 1), st.floats(0, 10))
def test_more_slices_wait_longer_but_never_for_twice_the_bytes_of_two(
    compiled: int, slices: int, exposed: float, dcn: float
) -> None:
    scaled = _scaled(compiled, exposed * dcn, dcn)
    waits = [scaled.exposed_seconds(count) for count in (1, slices, slices + 1)]
    assert waits == sorted(waits)
    assert waits[0] == 0
    assert waits[-1] <= (1 + exposed) * dcn + 1e-9
    assert isclose(scaled.exposed_seconds(compiled), exposed * dcn, abs_tol=1e-9)


def test_a_step_is_longer_by_what_it_waits_for() -> None:
    scaled = _scaled(2, 0.01, 0.1)
    # Four slices send 3/2 of what two do.
    assert [round(scaled.seconds(count), 6) for count in (1, 2, 4)] == [3.0, 3.01, 3.06]


def test_a_batch_allows_so_many_slices() -> None:
    scaled = _scaled(2, 0.01, 0.1)
    assert scaled.batch_tokens == 16 * 3 * 8192
    assert [scaled.most_slices(count * scaled.batch_tokens + 1) for count in (0, 1, 5)] == [0, 1, 5]
