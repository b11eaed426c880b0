import io
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console

from cli.answer import Form, Halt
from cli.plan import Plan, plan
from cli.review import review
from infra.stack.settings.read import parse
from infra.stack.settings.stack import Settings
from tests.cli.shown import read_output
from tests.infra.recording import Values
from tests.infra.review.known import fitting, own, unfit
from workloads.preflight_result import PreflightResult, cache_folder, keep


@pytest.fixture(autouse=True)
def no_preflight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Values:
    """The stack prod, which is written to a file of its own."""
    monkeypatch.setattr("cli.stack_file.stacks_folder", lambda: tmp_path)
    return written(tmp_path, own("prod"))


def written(folder: Path, values: Values) -> Values:
    config = {f"tpu-multislice:{section}": value for section, value in values.items()}
    (folder / "Pulumi.prod.yaml").write_text(json.dumps({"config": config}))
    return values


def compiled(values: Values, made: Callable[[Settings], PreflightResult] = fitting) -> None:
    keep(made(parse(values)), cache_folder(os.environ))


def shown(tokens: float | None = None, days: float | None = None, form: Form = Form.TEXT) -> tuple[int, str]:
    """Exit status and text of the command."""
    console = Console(file=io.StringIO(), highlight=False)
    return plan("prod", tokens, days, form, console), read_output(console)


def planned(tokens: float | None = None, days: float | None = None) -> tuple[int, Plan]:
    status, text = shown(tokens, days, Form.JSON)
    return status, Plan.model_validate_json(text)


def test_a_plan_has_the_days_and_dollars_of_the_review_and_the_day_on_which_the_job_ends(stack: Values) -> None:
    compiled(stack)
    status, text = shown()
    console = Console(file=io.StringIO(), highlight=False)
    assert review("prod", None, None, Form.TEXT, console) == 0
    assert "2.500 s a step, 76,500 steps take 2.2 days and cost $19,992 on cubes" in read_output(console)
    assert status == 0
    assert "ESTIMATE: pretrain takes 2.2 days for $19,992" in text
    assert str(datetime.now(UTC).date() + timedelta(days=3)) in text
    assert max(map(len, text.splitlines())) <= 100


def test_other_tokens_take_days_and_dollars_in_proportion(stack: Values) -> None:
    compiled(stack)
    (before,), (after,) = planned()[1].jobs, planned(tokens=1e12)[1].jobs
    assert before.days
    assert before.usd
    assert after.days
    assert after.tokens == 1e12
    assert after.days == pytest.approx(before.days * 1e12 / before.tokens)
    assert after.usd == pytest.approx(before.usd * 1e12 / before.tokens)
    assert (after.fastest_days, after.slowest_days) == pytest.approx((after.days / 2.5 * 2, after.days / 2.5 * 3))


def test_a_missed_deadline_is_the_exit_status(stack: Values) -> None:
    compiled(stack)
    status, found = planned(days=3)
    assert (status, found.jobs[0].in_time) == (0, True)
    status, text = shown(days=2)
    assert status == 2
    assert "later than 2 days" in text


def test_a_job_that_does_not_fit_has_neither_days_nor_dollars(stack: Values) -> None:
    compiled(stack, unfit)
    status, text = shown(days=1000)
    assert status == 2
    assert "pretrain does not fit; to see what would: multislice preflight -s prod" in " ".join(text.split())
    assert planned()[1].jobs[0].days is None


@pytest.mark.usefixtures("stack")
def test_a_step_that_was_never_compiled_is_reported_with_the_command_that_compiles_it() -> None:
    with pytest.raises(Halt, match="pretrain: its step is not compiled yet; run `multislice preflight -s prod`"):
        shown()


def test_a_step_that_was_never_compiled_does_not_hide_the_estimate_of_another(stack: Values, tmp_path: Path) -> None:
    compiled(stack)
    job = {key: value for key, value in cast(Values, stack["job"]).items() if key != "name"}
    others = {key: value for key, value in stack.items() if key != "job"}
    written(tmp_path, {**others, "jobs": {"pretrain": job, "other": {**job, "preset": "llama-3.2-1b"}}})
    console = Console(file=io.StringIO(), highlight=False)
    with pytest.raises(Halt, match="^other: its step is not compiled yet") as caught:
        plan("prod", None, None, Form.TEXT, console)
    assert "pretrain takes 2.2 days" in read_output(console)
    assert "pretrain" not in str(caught.value)


def test_a_step_without_an_answer_is_reported_with_the_reason(stack: Values) -> None:
    compiled(stack, lambda settings: fitting(settings).model_copy(update={"unsupported": "no such chip", "steps": ()}))
    with pytest.raises(Halt, match="pretrain: no such chip"):
        shown()


def test_a_stack_without_a_training_job_has_no_plan(stack: Values, tmp_path: Path) -> None:
    written(tmp_path, {**{name: value for name, value in stack.items() if name != "job"}, "jobs": {}})
    with pytest.raises(Halt, match="the stack prod must have a training job"):
        shown()


@pytest.mark.parametrize("value", [0.0, float("inf"), float("nan"), -1.0])
def test_an_amount_that_cannot_be_is_refused(value: float) -> None:
    with pytest.raises(Halt, match="--tokens must be a number above 0"):
        shown(tokens=value)
    with pytest.raises(Halt, match="--days must be a number above 0"):
        shown(days=value)


def test_a_job_of_many_centuries_has_no_day_on_which_it_ends(stack: Values) -> None:
    compiled(stack)
    assert planned(tokens=1e20)[1].jobs[0].ends is None
