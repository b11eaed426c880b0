"""The plan of slices, and the table of compiled steps that it is made from."""

from math import isclose

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.compiled_steps import job
from infra.plan import TABLE, Design, Goal, Option, Plan, Row, ScaledStep, plan, read_rows
from tests.infra.preflight_rows import design, fitting, unfit
from workloads.spec.between_slices import between_slices


def test_every_row_that_ships_is_a_job_that_can_be_had() -> None:
    shipped = read_rows(TABLE.read_text())
    assert shipped
    for each in shipped:
        spec = job(each.design)
        assert spec.training.global_batch == each.design.sequences_per_chip * spec.slices.chips
        assert each.step is None or each.needed_gib is not None
        assert each.step is None or sorted(each.step.steps, key=lambda step: -step.seconds) == [*each.step.steps]


def test_transfers_between_slices_are_as_many_as_the_arithmetic_says() -> None:
    """`infra.review` shows the arithmetic, and a plan what was compiled."""
    ratios: dict[str, float] = {}
    for each in read_rows(TABLE.read_text()):
        found = between_slices(job(each.design), None)
        if each.step and found:
            ratios[str(each.design)] = found.restart_seconds / each.step.dcn_seconds
    assert ratios
    assert ratios == pytest.approx(dict.fromkeys(ratios, 1.0), rel=0.02)


def test_a_row_that_was_compiled_again_replaces_the_previous_one() -> None:
    lines = [fitting(design(), 3.0), unfit(design(sequences=4)), fitting(design(), 2.5)]
    table = read_rows("".join(f"{each.model_dump_json()}\n" for each in lines))
    assert [each.step and each.step.quoted.seconds for each in table] == [2.5, None]


def test_a_design_is_written_as_it_is_read() -> None:
    written = "llama-3.2-1b:v5p:4x4x8:2:6:full"
    made = Design.parse(written)
    assert str(made) == written
    assert (made.sequence_length, made.attention) == (8192, "splash")


@pytest.mark.parametrize(
    "written", ["", "llama-3.2-1b:v5p:4x4x8:2:6", "llama-3.2-1b:v5p:4x4x8:2:0:full", "none:v5p:4x4x8:2:6:full"]
)
def test_what_names_no_design_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match=r"is not a design; write PRESET:|sequences_per_chip|is not a preset"):
        Design.parse(written)


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


GOAL = Goal(preset="llama-3.1-8b", tokens=1e12, days=30)
prices = {"v6e": 2.0, "v5p": 4.0}.get


def _of(found: Plan, slices: int) -> Option:
    return next(option for option in found.options if option.slices == slices)


def _binds(rows: list[Row], slices: int, goal: Goal = GOAL) -> tuple[str, ...]:
    return _of(plan(rows, goal, prices), slices).binds


def test_days_and_dollars_follow_from_the_step() -> None:
    option = _of(plan([fitting(design(), seconds=3.0, exposed=0.01)], GOAL, prices), 2)
    assert (option.chips, option.batch_tokens, option.step_seconds) == (32, 786_432, 3.01)
    # 1,271,566 steps, and 64 dollars an hour.
    assert option.days == pytest.approx(44.2988, abs=1e-4)
    assert option.usd == pytest.approx(68_043, abs=1)
    assert option.fastest_days < option.days < option.slowest_days
    assert not option.in_time


def test_slices_that_restart_one_by_one_wait_for_all_transfers() -> None:
    found = plan([fitting(design(), seconds=3.0, exposed=0.01, dcn=0.1)], GOAL, prices)
    alone, two, four = _of(found, 1), _of(found, 2), _of(found, 4)
    assert (alone.dcn_seconds, alone.continue_more_seconds) == (0.0, 0.0)
    assert (two.dcn_seconds, two.continue_more_seconds) == pytest.approx((0.1, 0.09))
    # Transfers beyond those of two slices are not hidden with `restart` either.
    assert (four.dcn_seconds, four.continue_more_seconds) == pytest.approx((0.15, 0.09))


def test_waiting_for_other_slices_lowers_the_mfu_as_much_as_it_slows_the_step() -> None:
    found = plan([fitting(design(slices=2), seconds=3.0, exposed=1.0)], GOAL, prices)
    alone, joined = _of(found, 1), _of(found, 2)
    assert (alone.step_seconds, alone.mfu) == (3.0, pytest.approx(0.4))
    assert (joined.step_seconds, joined.mfu) == (4.0, pytest.approx(0.3))


@pytest.mark.parametrize(
    ("days", "answers"), [(100, [1, 21]), (45, [2, 21]), (44, [3, 21]), (30, [3, 21]), (4.3, [21]), (4.2, [])]
)
def test_the_answers_are_the_fewest_and_the_most_slices_in_time(days: float, answers: list[int]) -> None:
    """One slice takes 88.3 days and 21 slices take 4.205. More would pass 1024 sequences a step."""
    goal = Goal(preset="llama-3.1-8b", tokens=1e12, days=days)
    found = plan([fitting(design(), seconds=3.0, exposed=0.0, dcn=0.0)], goal, prices)
    assert sorted(option.slices for option in found.answers("dollars")) == answers
    assert max(option.slices for option in found.options) == 21


def test_memory_binds_where_one_sequence_more_does_not_fit() -> None:
    fits = fitting(design(sequences=3))
    assert _binds([fits, unfit(design(sequences=4))], 1) == ("HBM",)
    assert _binds([fits, fitting(design(sequences=4), 4.0)], 1) == ()
    assert _binds([fits, unfit(design("v6e 4x8", 4))], 1) == ()
    assert _binds([fits, unfit(design(sequences=5))], 1) == ()


def test_the_batch_binds_where_one_slice_more_would_pass_it() -> None:
    goal = Goal(preset="llama-3.1-8b", tokens=1e12, days=30, most_batch_tokens=4 * 16 * 3 * 8192)
    assert [_binds([fitting(design())], count, goal) for count in (2, 4)] == [(), ("batch",)]


def test_other_slices_bind_where_they_are_waited_for_too_long() -> None:
    assert _binds([fitting(design(), seconds=3.0, exposed=0.2)], 2) == ("DCN",)
    assert _binds([fitting(design(), seconds=3.0, exposed=0.2)], 1) == ()


def test_the_dcn_share_is_measured_against_the_whole_step() -> None:
    goal = Goal(preset="llama-3.1-8b", tokens=1e12, days=30, most_dcn_share=0.5)
    assert _binds([fitting(design(), seconds=3.0, exposed=2.0)], 2, goal) == ()
    assert _binds([fitting(design(), seconds=3.0, exposed=4.0)], 2, goal) == ("DCN",)


def test_slices_of_one_host_are_not_joined_nor_is_what_was_compiled_for_one_slice() -> None:
    alone = plan([fitting(design("v6e 2x2"))], GOAL, prices)
    assert [(option.slices, option.binds) for option in alone.options] == [(1, ("one host",))]
    assert [option.slices for option in plan([fitting(design(slices=1))], GOAL, prices).options] == [1]


def test_of_several_designs_on_the_same_slices_the_fastest_counts() -> None:
    rows = [fitting(design(sequences=3), 3.0), fitting(design(sequences=4), 3.5)]
    found = plan(rows, GOAL, prices)
    assert {option.compiled.sequences_per_chip for option in found.options if option.slices <= 16} == {4}
    # The batch allows the smaller one on more slices.
    assert found.answers("days")[0].compiled.sequences_per_chip == 3


def test_answers_come_by_dollars_or_by_days_and_an_unknown_price_comes_last() -> None:
    rows = [fitting(design(), 3.0), fitting(design("v5p 4x4x4"), 1.0), fitting(design("v5e 16x16", 1), 9.0)]
    found = plan(rows, GOAL, prices)
    dollars = [option.usd for option in found.answers("dollars")]
    known = [usd for usd in dollars if usd is not None]
    assert dollars == [*sorted(known), *[None] * (len(dollars) - len(known))]
    assert None in dollars
    days = [option.days for option in found.answers("days")]
    assert days == sorted(days)


def test_what_is_not_known_is_said_with_what_to_run() -> None:
    with pytest.raises(ValueError, match=r"no preflight of llama-3.1-8b on v4, .*: run python -m benchmarks.compiled"):
        plan([fitting(design(preset="llama-3.2-1b"))], GOAL, prices)
    with pytest.raises(
        ValueError, match=r"v6e 4x4 with sequences_per_chip 3.* does not fit: needs 40.0 GiB, has 31.2 GiB"
    ):
        plan([unfit(design())], GOAL, prices)
    notes = plan([fitting(design()), fitting(design("v5e 16x16", 8))], GOAL, prices).notes
    assert any(note.startswith("no preflight of llama-3.1-8b on v4, v5p, 7x yet") for note in notes)
    assert any("than the batch allows: v5e 16x16 with sequences_per_chip 8" in note for note in notes)


def test_a_plan_survives_the_way_through_json() -> None:
    found = plan([fitting(design())], GOAL, prices)
    assert Plan.model_validate_json(found.model_dump_json()) == found
