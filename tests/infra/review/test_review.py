"""What a review says, in its answers and in its tables."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.review.answers import answers, submission_answers, tables
from infra.review.chip_tables import preflight_tables
from infra.review.review import Known, Review, review
from infra.review.table import WIDTH, as_text
from infra.stack.cost import bill
from infra.stack.settings.read import parse
from tests.infra.one_job import unnamed
from tests.infra.recording import ROOT, Values, scale_values, stack_values
from tests.infra.review.known import NOTHING, fitting, own, running, unfit
from tests.infra.spoiling import edited
from workloads.preflight_result import Alternative, PreflightResult, Remedy

GOLDEN = ROOT / "tests" / "golden" / "reviews.txt"
_ONE_SLICE = {"slices": {"group": "trillium", "count": 1}}
_HELD = running("pretraining", "pretraining", "v5p-4x4x4-reservation-cubes", 192, "big")
_ALTERNATIVE = Alternative(compile="quick", fits=True, seconds=2.75, compile_cpu_seconds=40.0)
_OTHER_MESH = Remedy(change="mesh: x", fits=False, peak_gib=140.0, seconds=None)
_ELSEWHERE = {"job.initial_weights": "gs://elsewhere/weights"}
_RESERVATION = {"kind": "reservation", "name": "chips"}

type Case = tuple[str, Callable[[Review], Any], Values, Known]


def _dev(**changes: object) -> Values:
    return edited(own("dev"), {path.replace("__", "."): value for path, value in changes.items()})


def _several(*jobs: Values) -> Values:
    """The stack dev with these jobs."""
    values = own("dev")
    del values["job"]
    return values | {"jobs": dict(zip("abcde", jobs, strict=False))}


def _of_one_job() -> Iterator[Case]:
    """A training job in an empty cluster, which is compiled or not."""
    prod = own("prod")
    settings = parse(prod)

    def with_result(found: PreflightResult, **changes: object) -> Known:
        return replace(NOTHING, preflights={"pretrain": found.model_copy(update=changes)})

    yield "the answers about a job that fits", answers, prod, with_result(fitting(settings))
    yield "the answers about a job that does not fit", answers, prod, with_result(unfit(settings))
    yield "a job that fits", preflight_tables, prod, with_result(fitting(settings))
    yield "a job that does not fit", preflight_tables, prod, with_result(unfit(settings))
    yield "nothing helps", preflight_tables, prod, with_result(unfit(settings), remedies=())
    yield "nothing that was tried helps", preflight_tables, prod, with_result(unfit(settings), remedies=(_OTHER_MESH,))
    other = with_result(fitting(settings), alternative=_ALTERNATIVE)
    yield "the other way to compile", preflight_tables, prod, other
    unknown = with_result(unfit(settings), unsupported="no compiler for it", fits=None)
    yield "an answer that cannot be had", preflight_tables, prod, unknown


def _of_queues() -> Iterator[Case]:
    """Jobs that wait, of several kinds, or none."""
    yield "a job that preempts another", answers, own("prod"), replace(NOTHING, workloads=[_HELD])
    yield "a queue on hold", answers, edited(own("prod"), {"teams.pretraining.admission": "hold"}), NOTHING
    trained = unnamed(own("dev"))
    program = {key: trained[key] for key in ("team", "priority", "max_restarts", "slices")}
    program |= {"kind": "container", "image": f"program@sha256:{'a' * 64}", "max_hours": 4}
    one = trained | _ONE_SLICE
    yield "a container, which has a limit as its pace", answers, _several(program), NOTHING
    yield "jobs with the same answer share it", answers, _several(*[one] * 5), NOTHING
    yield "no jobs", answers, _several(), NOTHING
    placed = _several(one, one, program | _ONE_SLICE) | {"scheduling": {"placement": "topology-aware"}}
    yield "what holds for all jobs is said once", tables, placed, NOTHING
    yield "a job that a member submits", submission_answers, _dev(job__slices__count=1), replace(NOTHING, workloads=[])


def _of_prices() -> Iterator[Case]:
    """Prices, known and unknown, compared with what is deployed."""
    deployed = replace(NOTHING, deployed=bill(parse(own("dev")), {}, None))
    yield "the price of what is deployed", answers, own("dev"), deployed
    yield "a higher price", answers, _dev(slices__trillium__count=3), deployed
    staging = own("staging")
    spot = staging["slices"]["trillium"] | {"capacity": "spot", "count": 1}
    deployed = replace(NOTHING, deployed=bill(parse(staging), {}, None))
    yield "known prices", tables, own("dev"), NOTHING
    yield "an unknown price", tables, staging, NOTHING
    yield "known and unknown prices", tables, edited(own("staging"), {"slices.spare": spot}), NOTHING
    yield "an unknown difference", tables, edited(own("staging"), {"slices.trillium.count": 3}), deployed
    moved = edited(own("staging"), {"slices.trillium.capacity": _RESERVATION})
    yield "another capacity of unknown price", tables, moved, deployed


def _of_obstacles() -> Iterator[Case]:
    """What `up` refuses, and what cannot be checked from here."""
    for stack in ("dev", "prod"):
        yield f"what up refuses of the stack {stack}", answers, stack_values(stack), NOTHING
    yield "refused values come first", tables, stack_values("dev"), NOTHING
    yield "a value that cannot be checked", answers, edited(own("dev"), _ELSEWHERE), NOTHING
    yield "which comes first too", tables, edited(own("dev"), _ELSEWHERE), NOTHING


@pytest.mark.costs(cpu_seconds=6)
def test_what_a_review_says_is_what_the_golden_file_says(accepted_golden: Callable[[Path, str], None]) -> None:
    lines: list[str] = []
    for cases in (_of_one_job, _of_queues, _of_prices, _of_obstacles):
        for name, show, values, known in cases():
            text = as_text(show(review("test", parse(values), known)))
            assert max(map(len, text.splitlines())) <= WIDTH, name
            lines += [f"## {name}", text, ""]
    accepted_golden(GOLDEN, "\n".join(lines))


def test_a_plan_whose_job_does_not_fit_does_not_go_and_one_whose_job_waits_does() -> None:
    settings = parse(stack_values("prod"))
    assert not review("prod", settings, replace(NOTHING, preflights={"pretrain": unfit(settings)})).can_run
    values = stack_values("prod")
    values["teams"]["pretraining"]["admission"] = "hold"
    waiting = review("prod", parse(values), NOTHING)
    assert (waiting.jobs[0].admission.outcome, waiting.can_run) == ("waits", True)


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
