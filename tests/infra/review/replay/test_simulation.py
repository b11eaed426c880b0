"""What happens to jobs over time: admission, reclaim, failures, spares, lead time and maintenance."""

from dataclasses import replace

import pytest

from infra.review.replay.results import chips_over_time
from tests.infra.review.admission.situations import queue
from tests.infra.review.replay.fleets import drawn, fleet, group, job, of_queues, replayed, stream, summary, trace


def test_jobs_wait_until_chips_are_free_and_idle_chips_cost_dollars() -> None:
    found = summary(trace(job("first", hours=4), job("next", at=1, hours=2)), fleet({"a": 16}))
    assert (found.overall.p50, found.overall.max, found.finished) == (0, 3, 2)
    assert (found.chip_hours.paid, found.chip_hours.useful, found.chip_hours.idle) == (24 * 16, 6 * 16, 18 * 16)
    assert (found.goodput, found.usd, found.idle_usd) == (0.25, 2 * 24 * 16, 2 * 18 * 16)
    assert found.usd_per_useful_chip_hour == 8


def test_an_owner_reclaims_borrowed_chips_and_the_guest_loses_what_it_has_not_saved() -> None:
    jobs = job("guest", team="b", hours=6, slices=2, save_hours=2), job("owner", at=5, hours=1)
    found = replayed(trace(*jobs), fleet({"a": 32, "b": 0}), restart_hours=0.5)
    guest, owner = found.runs
    assert (owner.first_start, owner.finished) == (5, 6)
    assert (guest.preemptions, guest.lost_chip_hours, guest.finished) == (1, 32, 6 + 0.5 + 2)
    assert found.usage["x"].by_use == {"useful": 6 * 32 + 16, "lost": 32, "restarting": 16}


def test_a_job_without_saves_begins_again() -> None:
    jobs = job("guest", team="b", hours=6), job("owner", at=5, hours=1)
    guest, _ = replayed(trace(*jobs), fleet({"a": 16, "b": 0})).runs
    assert (guest.lost_chip_hours, guest.finished) == (5 * 16, 12)


def test_a_job_that_no_quota_can_admit_is_starved_and_so_is_one_that_waits_long() -> None:
    jobs = job("large", slices=3), job("holds", hours=20), job("late", at=1)
    found = summary(trace(*jobs), fleet({"a": 16}), starved_hours=15)
    assert [(each.name, each.hours, each.started) for each in found.starved] == [
        ("large", 24, False),
        ("late", 19, True),
    ]


def test_a_job_that_no_quota_can_admit_is_starved_in_a_short_trace() -> None:
    found = summary(trace(job("large", at=23, slices=3), job("late", at=23.5, slices=2), hours=24), fleet({"a": 32}))
    assert [each.name for each in found.starved] == ["large"]


def test_a_job_waits_after_a_preemption_too() -> None:
    jobs = job("guest", team="b", hours=6, save_hours=1), job("owner", at=5, hours=3)
    found = summary(trace(*jobs), fleet({"a": 16, "b": 0}), starved_hours=3)
    assert [(each.name, each.hours, each.started) for each in found.starved] == [("guest", 3, True)]


def test_hours_after_the_end_of_the_trace_do_not_count() -> None:
    found = summary(trace(job("long", at=20, hours=24)), fleet({"a": 16}))
    assert (found.finished, found.chip_hours.useful) == (0, 4 * 16)


def test_requested_chips_come_after_a_lead_time_and_cost_only_while_they_exist() -> None:
    on_request = group(chips=16, on_request=True, run_hours=4.0)
    jobs = trace(job("long", hours=6, save_hours=1), job("short", at=1, hours=1))
    found = replayed(jobs, fleet({"a": 16}, on_request), lead_hours=0.5)
    long, short = found.runs
    assert (long.first_start, long.interruptions, long.finished) == (0.5, 1, 0.5 + 4 + 0.5 + 2)
    assert (short.first_start, short.finished) == (7.5, 8.5)
    paid = summary(jobs, fleet({"a": 16}, on_request), lead_hours=0.5)
    assert (paid.chip_hours.paid, paid.usd) == (7 * 16, 14 * 16)


def test_a_job_that_never_saves_and_outlasts_requested_chips_never_ends() -> None:
    on_request = group(chips=16, on_request=True, run_hours=4.0)
    (run,) = replayed(trace(job("long", hours=6)), fleet({"a": 16}, on_request)).runs
    assert (run.finished, run.interruptions, run.lost_chip_hours) == (None, 4, 4 * 4 * 16)


def test_a_failed_slice_is_replaced_by_a_spare_one_or_awaited() -> None:
    jobs = trace(job("run", hours=24, slices=2, save_hours=1))
    options = {"failures_per_day": 2, "repair_hours": 3}
    without, with_two = (summary(jobs, fleet({"a": 32}), spares=spares, **options) for spares in (0, 2))
    assert without.interruptions > 0
    assert without.lost_chip_hours > 0
    hours = [found.chip_hours.useful + found.chip_hours.lost for found in (without, with_two)]
    assert hours[0] < hours[1] - 2 * 32


def test_failures_are_the_same_on_other_quotas() -> None:
    jobs = trace(*(job(f"j{index}", hours=23, slices=1, save_hours=0.1) for index in range(2)))
    one, other = (replayed(jobs, fleet(quotas), failures_per_day=1) for quotas in ({"a": 32}, {"a": 16, "b": 16}))
    assert [run.interruptions for run in one.runs] == [run.interruptions for run in other.runs]


def test_each_running_slice_is_maintained_once_in_the_interval() -> None:
    jobs = trace(*(job(f"j{row}", row=row, hours=739, save_hours=0.1) for row in range(4)), hours=740)
    found = replayed(jobs, fleet({"a": 64}), maintenance_days=30.0)
    assert [run.interruptions for run in found.runs] == [1, 1, 1, 1]


def test_a_slice_fails_as_often_without_a_topology_of_its_flavor() -> None:
    jobs = trace(job("run", hours=1199, save_hours=0.1, shape="8x8"), hours=1200)
    flavors = (group(chips=64, topology=topology, slice_chips=chips) for topology, chips in (("8x8", 64), ("", 4)))
    own, of_any = (replayed(jobs, fleet({"a": 64}, each), failures_per_day=2).runs[0].interruptions for each in flavors)
    assert 0.5 < of_any / own < 2


def test_workloads_that_preempt_each_other_in_turn_end_the_moment_and_are_named() -> None:
    small = group(topology="2x2", slice_chips=4, chips=16)
    on = replace(of_queues([queue("a", {"x": 8}), queue("b", {"x": 8})], small), fair_sharing=True)
    jobs = (("large", "a", 4, 500), ("small", "a", 2, 100), ("new", "b", 3, 500))
    at_once = [job(name, team=team, slices=each, priority=how, shape="2x2") for name, team, each, how in jobs]
    found = summary(trace(*at_once), on)
    assert len(found.preempts_in_circles) > 1


def test_a_replay_is_the_same_with_the_same_seed() -> None:
    jobs = drawn(stream("a", 8), stream("b", 8), days=6)
    on = fleet({"a": 32, "b": 32})
    first, again, other = (summary(jobs, on, failures_per_day=0.5, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first.interruptions != other.interruptions or first.lost_chip_hours != other.lost_chip_hours


def test_chips_are_kept_at_every_moment() -> None:
    jobs = drawn(*(stream(team, 12, hours={"median": 3, "p90": 12}) for team in "abc"), days=10)
    found = replayed(jobs, fleet({"a": 32, "b": 32, "c": 16}), failures_per_day=0.3, spares=1)
    days, series, idle = chips_over_time(found, 240)
    assert (len(days), days[-1]) == (240, 10)
    assert all(sum(each) == pytest.approx(96) for each in zip(*series.values(), idle, strict=True))
    hours = summary(jobs, fleet({"a": 32, "b": 32, "c": 16}), failures_per_day=0.3, spares=1).chip_hours
    # Each of the five parts is rounded to 0.1.
    parts = hours.useful + hours.lost + hours.restarting + hours.repaired + hours.idle
    assert hours.paid == pytest.approx(parts, rel=0, abs=0.25)
    assert hours.idle < 0.8 * hours.paid
