from dataclasses import replace

import pytest

from infra.review.review import review
from infra.stack.settings.read import parse
from infra.stack.settings.stack import Settings
from tests.infra.recording import stack_values
from tests.infra.review.known import NOTHING, fitting, unfit


@pytest.fixture(scope="module")
def settings() -> Settings:
    return parse(stack_values("prod"))


def test_days_and_dollars_follow_from_steps_and_their_estimates(settings: Settings) -> None:
    found = review("prod", settings, replace(NOTHING, preflights={"pretrain": fitting(settings)}))
    (job,), (cost,) = found.jobs, found.bill.jobs
    assert [pace.days for pace in job.paces] == pytest.approx([76500 * s / 86400 for s in (3.0, 2.5, 2.0)])
    assert [pace.usd for pace in job.paces] == pytest.approx([76500 * s / 3600 * 128 * 2.94 for s in (3, 2.5, 2)])
    assert job.paces[1].usd == pytest.approx(cost.groups[0].usd)
    assert job.paces[1].tokens_per_day == pytest.approx(256 * 8192 * 86400 / 2.5)
    assert job.plan.training
    assert job.plan.training.tokens == 76500 * 256 * 8192


def test_a_plan_whose_job_does_not_fit_does_not_go_and_one_whose_job_waits_does(settings: Settings) -> None:
    assert not review("prod", settings, replace(NOTHING, preflights={"pretrain": unfit(settings)})).can_run
    values = stack_values("prod")
    values["teams"]["pretraining"]["admission"] = "hold"
    waiting = review("prod", parse(values), NOTHING)
    assert (waiting.jobs[0].admission.outcome, waiting.can_run) == ("waits", True)
