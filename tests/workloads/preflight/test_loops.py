from hypothesis import given
from hypothesis import strategies as st

from tests.workloads.preflight.texts import loop, module
from workloads.preflight.loops import schedule


@given(
    first=st.integers(-20, 20),
    limit=st.integers(-20, 20),
    step=st.integers(1, 5),
    inclusive=st.booleans(),
    down=st.booleans(),
)
def test_trips_are_those_of_a_range(first: int, limit: int, step: int, inclusive: bool, down: bool) -> None:
    direction = ("GE" if inclusive else "GT") if down else ("LE" if inclusive else "LT")
    sign = -1 if down else 1
    computations, begin, run = loop("loop", first, limit, sign * step, direction)
    found = schedule(module(begin, run, computations=computations))
    assert found.runs["loop_body"].times == len(range(first, limit + sign * inclusive, sign * step))


def test_a_loop_in_a_loop_runs_for_each_trip_of_the_outer_one() -> None:
    inner, begin_inner, run_inner = loop("inner", 0, 3, 1, "LT")
    outer, begin, run = loop("outer", 2, 6, 1, "LT", body=f"  {begin_inner}\n  {run_inner}\n")
    assert schedule(module(begin, run, computations=inner + outer)).runs["inner_body"].times == 12


def test_a_loop_that_the_data_ends_counts_once_and_is_named() -> None:
    computations, begin, run = loop("loop", 0, 3, 1, "LT")
    read = computations.replace("constant(3)", "parameter(1)")
    found = schedule(module(begin, run, computations=read))
    assert (found.runs["loop_body"].times, found.unknown_loops) == (1, ("loop",))


def test_the_addition_of_an_all_reduce_never_runs_by_itself() -> None:
    addition = "%add (a: f32[], b: f32[]) -> f32[] {\n  ROOT %a = f32[] parameter(0)\n}\n"
    reduce = "%reduce = f32[] all-reduce(%a), replica_groups={}, to_apply=%add"
    assert set(schedule(module("%a = f32[] parameter(0)", reduce, computations=addition)).runs) == {"main"}
