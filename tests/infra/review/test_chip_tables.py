"""Tables about training steps on their chips."""

from dataclasses import replace

import pytest

from infra.review.chip_tables import preflight_tables
from infra.review.review import review
from infra.review.table import WIDTH, as_text
from infra.stack.settings.read import parse
from tests.infra.recording import scale_values, stack_values
from tests.infra.review.known import NOTHING, fitting, unfit
from workloads.preflight_result import Alternative, PreflightResult, Remedy

SETTINGS = parse(stack_values("prod"))
OTHER_MESH = Remedy(change="mesh: x", fits=False, peak_gib=140.0, seconds=None)


def show_chips(preflight: PreflightResult) -> str:
    return as_text(preflight_tables(review("prod", SETTINGS, replace(NOTHING, preflights={"pretrain": preflight}))))


def rows(preflight: PreflightResult) -> list[list[str]]:
    return [line.split() for line in show_chips(preflight).splitlines()]


def test_an_answer_has_memory_pace_traffic_and_calibration_within_100_columns() -> None:
    text = show_chips(fitting(SETTINGS))
    assert max(map(len, text.splitlines())) <= WIDTH
    assert text.startswith("Fits  yes, it needs 40.00 of 95.70 GiB on each device\n")
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
    assert "f32[2,8192,128256]" in show_chips(found)


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


def test_padding_is_reported_for_the_slices_that_a_job_may_start_on() -> None:
    values = scale_values()
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


def test_an_answer_that_cannot_be_had_is_its_reason() -> None:
    text = show_chips(unfit(SETTINGS).model_copy(update={"unsupported": "no compiler for it", "fits": None}))
    assert "Fits  unknown: no compiler for it" in text
    assert "Compiled in" not in text
