"""Reviews as tables."""

from dataclasses import replace

import pytest

from infra.cost import bill
from infra.review.review import Known, review
from infra.review.table import WIDTH, as_text
from infra.review.tables import preflight_tables, submission_tables, tables
from infra.settings.read import parse
from tests.infra.one_job import unnamed
from tests.infra.recording import Values, stack_values
from tests.infra.review.known import NOTHING, fitting, own, running, unfit
from workloads.preflight_result import Alternative, PreflightResult, Remedy


def show(values: Values, known: Known) -> str:
    return as_text(tables(review("test", parse(values), known)))


def test_each_group_is_listed_with_its_price_per_hour_day_and_month() -> None:
    text = show(own("dev"), NOTHING)
    assert text.startswith("Price  $19.44 an hour ($466.56 a day) as soon as it is up\n")
    assert "trillium        2   v6e 2x4      16   spot         1.2150   19.44     467    14,191" in text
    assert "us-east5, 2026-08" in text


def test_an_unknown_price_is_never_shown_as_zero() -> None:
    values = own("staging")
    text = show(values, NOTHING)
    assert "Price  $0.00 an hour ($0.00 a day) as soon as it is up, at most an unknown price for trillium\n" in text
    values["slices"]["spare"] = values["slices"]["trillium"] | {"capacity": "spot", "count": 1}
    mixed = show(values, NOTHING)
    most = "at most $19.44 an hour ($466.56 a day) and an unknown price for trillium"
    assert most in " ".join(mixed.splitlines())
    assert "19.44 + ?" in mixed
    assert [row.split()[:2] for row in mixed.splitlines() if row.startswith("all ")] == [
        ["all", "flex-start"],
        ["all", "spot"],
    ]


def test_what_a_job_may_cost_at_most_follows_from_its_hours() -> None:
    values = own("dev")
    values["job"]["max_hours"] = 10
    assert "tiny is stopped after 10 hours: at most $194.40 on trillium." in show(values, NOTHING)


def test_a_submitted_job_shows_its_own_price_per_day_and_its_place_in_the_queue() -> None:
    values = own("dev")
    values["job"]["slices"]["count"] = 1
    text = as_text(submission_tables(review("test", parse(values), NOTHING)))
    assert text.startswith("Price  $9.72 an hour ($233.28 a day) while it runs\n")
    assert "is admitted at once, on v6e-2x4-spot-trillium" in text
    # Members have no stack file to compile the step from.
    assert "preflight" not in text
    unknown = as_text(submission_tables(review("test", parse(own("staging")), NOTHING)))
    assert unknown.startswith("Price  unknown\n")


def test_the_difference_to_what_is_deployed_is_signed() -> None:
    values = own("dev")
    before = bill(parse(values), {}, None)
    assert "Same cost as the deployed stack." in show(values, replace(NOTHING, deployed=before))
    values["slices"]["trillium"]["count"] = 3
    assert (
        "(+$233.28 a day) at once, +$9.72 an hour (+$233.28 a day) at most; trillium 16 to 24 chips, +$9.72"
        in " ".join(show(values, replace(NOTHING, deployed=before)).split("\n"))
    )
    fewer = bill(parse(values), {}, None)
    assert "-$9.72 an hour (-$233.28 a day) at once" in show(own("dev"), replace(NOTHING, deployed=fewer))


def test_an_unknown_difference_is_never_shown_as_none() -> None:
    values = own("staging")
    before = bill(parse(values), {}, None)
    values["slices"]["trillium"]["count"] = 3
    text = " ".join(show(values, replace(NOTHING, deployed=before)).split("\n"))
    assert "+$0.00 an hour (+$0.00 a day) at once, unknown at most; trillium 32 to 48 chips, unknown" in text
    values["slices"]["trillium"] |= {"count": 2, "capacity": {"kind": "reservation", "name": "chips"}}
    text = " ".join(show(values, replace(NOTHING, deployed=before)).split("\n"))
    assert "trillium 32 to 32 chips, unknown" in text


def test_who_is_pushed_out_is_named() -> None:
    others = [running("pretraining", "pretraining", "v5p-4x4x4-reservation-cubes", 192)]
    text = show(own("prod"), replace(NOTHING, workloads=others))
    assert "preempts 1 running" in text
    assert "pretraining/other (192 chips, priority 500" in text
    assert "as if nothing else ran" not in text


def test_a_job_that_does_not_fit_is_shown_with_its_largest_arrays_and_attempts() -> None:
    values = own("prod")
    text = show(values, replace(NOTHING, preflights={"pretrain": unfit(parse(values))}))
    assert "Chips  DOES NOT FIT: needs 120.00 of 95.70 GiB on each device" in text
    assert "f32[2,8192,128256]" in text
    assert "training.remat: full" in text
    assert "ESTIMATE: 76,500 steps" not in text


def test_the_pace_is_called_an_estimate_and_has_its_calibration() -> None:
    values = own("prod")
    text = show(values, replace(NOTHING, preflights={"pretrain": fitting(parse(values))}))
    assert "ESTIMATE: 76,500 steps, 1.6e+11 tokens in 2.2 days for $19,992 on cubes" in text
    assert "attention kernels at   step s" in text
    assert "nothing ran on a TPU" in " ".join(text.split())
    assert "CALIBRATION" in text


@pytest.mark.parametrize("stack", ["dev", "staging", "prod", "scale"])
def test_every_stack_has_a_review(stack: str) -> None:
    text = show(own(stack), NOTHING)
    assert [line.split("  ")[0] for line in text.splitlines() if line.startswith(("Price", "Queue", "Chips"))] == [
        "Price",
        "Queue",
        "Chips",
    ]


def test_the_review_of_a_stack_without_jobs_shows_its_price_and_says_so(values: Values) -> None:
    del values["job"]
    *_, price, queue = tables(review("dev", parse(values | {"jobs": {}}), NOTHING))
    assert price.rows
    assert (queue.title, queue.rows) == ("Queue", ())


def test_tables_about_one_of_several_jobs_have_its_name() -> None:
    values = own("dev")
    job = unnamed(values)
    container = {key: job[key] for key in ("team", "priority", "max_restarts")}
    container |= {"kind": "container", "image": f"program@sha256:{'0' * 64}"}
    one_slice = {"slices": {"group": "trillium", "count": 1}}
    values["jobs"] = {"one": job | one_slice, "other": job | one_slice, "program": container | one_slice}
    text = show(values, NOTHING)
    for title in ("Queue of one", "Chips of one", "Queue of other", "Chips of other", "Queue of program"):
        assert f"{title}  " in text
    assert "Chips of program" not in text


def test_what_up_refuses_and_what_is_doubtful_come_first() -> None:
    values = own("dev")
    values["job"]["initial_weights"] = "gs://elsewhere/weights"
    (first, second, *_) = tables(review("dev", parse(values), NOTHING))
    assert (first.title, first.state, second.title) == ("Ready", "notable", "Price")
    assert "elsewhere" in as_text([first])
    (first, *_) = tables(review("dev", parse(stack_values("dev")), NOTHING))
    assert (first.title, first.state) == ("Ready", "bad")
    assert "my-project" in as_text([first])
    (first, *_) = tables(review("dev", parse(own("dev")), NOTHING))
    assert first.title == "Price"


SETTINGS = parse(stack_values("prod"))
OTHER_MESH = Remedy(change="mesh: x", fits=False, peak_gib=140.0, seconds=None)


def show_chips(preflight: PreflightResult) -> str:
    return as_text(preflight_tables(review("prod", SETTINGS, replace(NOTHING, preflights={"pretrain": preflight}))))


def rows(preflight: PreflightResult) -> list[list[str]]:
    return [line.split() for line in show_chips(preflight).splitlines()]


def test_an_answer_has_memory_pace_traffic_and_calibration_within_100_columns() -> None:
    text = show_chips(fitting(SETTINGS))
    assert max(map(len, text.splitlines())) <= WIDTH
    assert text.startswith("Chips  fits: 40.00 of 95.70 GiB on each device\n")
    assert ["35%", "(quoted)", "2.500", "40.0%"] in [row[:4] for row in rows(fitting(SETTINGS))]
    assert ["to", "other", "slices", "(DCN)", "all-reduce", "1,000.0"] in rows(fitting(SETTINGS))
    assert ["v6e", "4x4", "3", "x", "8192", "3.393", "3.533", "1.04"] in rows(fitting(SETTINGS))


def test_the_other_way_to_compile_is_shown_with_what_it_costs_and_saves() -> None:
    other = Alternative(compile="quick", fits=True, seconds=2.75, compile_cpu_seconds=40.0)
    text = " ".join(show_chips(fitting(SETTINGS).model_copy(update={"alternative": other})).split())
    assert "With compile: quick, 40 s of CPU time instead of" in text
    assert "ESTIMATED step 2.750 s instead of 2.500 s" in text


def test_what_does_not_fit_has_no_pace_and_what_was_tried_instead() -> None:
    found = unfit(SETTINGS)
    assert "Instead  these would fit" in show_chips(found)
    assert ["training.remat:", "full", "yes", "90.00", "3.500"] in rows(found)
    assert ["mesh:", "fsdp", "32", "x", "tensor", "2", "no", "-", "-"] in rows(found)
    assert "tokens/s/chip" not in show_chips(found)


@pytest.mark.parametrize("remedies", [(), (OTHER_MESH,)])
def test_where_nothing_helps_more_chips_are_advised(remedies: tuple[Remedy, ...]) -> None:
    assert "use larger slices" in show_chips(unfit(SETTINGS).model_copy(update={"remedies": remedies}))


def test_values_of_the_optimizer_are_shown_with_the_presets_and_whether_a_run_may_continue_with_them() -> None:
    values = stack_values("prod")
    job = values["job"]
    job["optimizer"] = {"learning_rate": 1e-4, "clip_norm": 0.5, "kind": "muon", "skip_norm": 9}
    job["allow_changes"] = ["optimizer.learning_rate"]
    (plan,) = review("prod", parse(values), NOTHING).jobs
    assert plan.plan.training
    found = {value.setting: (value.value, value.preset, value.resumes) for value in plan.plan.training.optimizer}
    assert found == {
        "optimizer.learning_rate": (1e-4, 3e-4, True),
        "optimizer.clip_norm": (0.5, 1.0, False),
        "optimizer.kind": ("muon", "adamw", None),
        "optimizer.skip_norm": (9.0, None, False),
    }
    text = as_text(preflight_tables(review("prod", parse(values), NOTHING)))
    assert "optimizer.learning_rate 0.0001, 0.0003 in the preset" in text
    assert "optimizer.kind muon, adamw in the preset" in text
    assert "optimizer.skip_norm 9, unset in the preset" in text


def test_padding_is_reported_for_the_slices_that_a_job_may_start_on() -> None:
    values = stack_values("scale")
    values["job"] |= {"training": {"global_batch": 16 * 64 * 256}}
    values["job"]["slices"] |= {"min_count": 50}
    made = review("scale", parse(values), NOTHING)
    (job,) = made.jobs
    assert job.plan.training
    found = {one.slices: one.share for one in job.plan.training.padding}
    assert {*found} == {*range(50, 64)}
    assert found[62] == pytest.approx(1 - 16 * 64 / (17 * 62))
    text = " ".join(as_text(preflight_tables(made)).split())
    assert "padding: 4.4% on 63 of 64 slices, 2.8% on 62 of 64 slices; at most 5.2%, on 60." in text


def test_a_job_whose_slices_restart_one_by_one_starts_on_all_of_them() -> None:
    values = stack_values("scale")
    values["job"] |= {"training": {"global_batch": 16 * 64 * 256}, "slice_failure": "continue"}
    values["job"]["slices"] |= {"min_count": 50}
    (job,) = review("scale", parse(values), NOTHING).jobs
    assert job.plan.training
    assert job.plan.training.padding == ()


def test_an_answer_that_cannot_be_had_is_its_reason() -> None:
    text = show_chips(unfit(SETTINGS).model_copy(update={"unsupported": "no compiler for it", "fits": None}))
    assert "Chips  NO ANSWER: no compiler for it" in text
    assert "Compiled in" not in text
