"""A review in five lines."""

from dataclasses import replace

import pytest

from infra.review.answers import answers, submission_answers
from infra.review.review import Known, review
from infra.review.table import Table, as_text
from infra.stack.cost import bill
from infra.stack.settings.read import parse
from tests.infra.one_job import unnamed
from tests.infra.recording import Values, stack_values
from tests.infra.review.known import NOTHING, fitting, own, running, unfit

ON_CUBES = "v5p-4x4x4-reservation-cubes"


def lines(values: Values, known: Known = NOTHING) -> dict[str, str]:
    found = answers(review("test", parse(values), known))
    assert not [answer for answer in found if isinstance(answer, Table)]
    return {answer.title: answer.verdict for answer in found}


def compiled(fits: bool = True) -> dict[str, str]:
    values = own("prod")
    made = (fitting if fits else unfit)(parse(values))
    return lines(values, replace(NOTHING, preflights={"pretrain": made}))


@pytest.mark.parametrize("stack", ["dev", "staging", "prod", "local"])
def test_a_review_is_five_lines_that_fit_into_a_terminal(stack: str) -> None:
    found = as_text(answers(review(stack, parse(own(stack)), NOTHING))).splitlines()
    assert [line.split(maxsplit=1)[0] for line in found] == ["Price", "Fits", "Pace", "Queue", "Verdict"]


def test_a_compiled_job_has_memory_seconds_time_and_dollars() -> None:
    assert compiled() == {
        "Price": "$752.64 an hour ($18,063.36 a day) while deployed",
        "Fits": "yes, it needs 40.00 of 95.70 GiB on each device",
        "Pace": "ESTIMATE: 2.500 s a step, 76,500 steps take 2.2 days and cost $19,992 on cubes",
        "Queue": "admitted at once (simulated for an empty cluster)",
        "Verdict": "nothing prevents it; `multislice preview -s test` also checks the policy rules",
    }


def test_a_job_that_does_not_fit_has_no_pace_and_the_verdict_names_it() -> None:
    found = compiled(fits=False)
    assert found["Fits"] == "NO, it needs 120.00 of 95.70 GiB on each device"
    assert "Pace" not in found
    assert found["Verdict"] == "NO: pretrain does not fit"


def test_a_container_job_has_no_memory_and_its_limit_as_pace(values: Values) -> None:
    trained = unnamed(values)
    job = {key: trained[key] for key in ("team", "priority", "max_restarts", "slices")}
    job |= {"kind": "container", "image": f"program@sha256:{'a' * 64}", "max_hours": 4}
    found = lines(values | {"jobs": {"program": job}})
    assert [*found] == ["Price", "Pace", "Queue", "Verdict"]
    assert found["Pace"] == "stopped after 4 hours, at most $77.76"


def test_the_reason_why_a_job_waits_or_never_starts_is_in_words_once() -> None:
    values = own("prod")
    blocked = lines(values, replace(NOTHING, workloads=[running("pretraining", "pretraining", ON_CUBES, 192, "big")]))
    assert blocked["Queue"] == "preempts pretraining/big, admitted afterwards"
    values["teams"]["pretraining"]["admission"] = "hold"
    held = lines(values)
    assert held["Queue"] == "waits because queue pretraining is on hold (simulated for an empty cluster)"
    assert not held["Verdict"].startswith("NO")


def test_jobs_with_the_same_answer_share_it(values: Values) -> None:
    job = unnamed(values)
    one = job | {"slices": {"group": "trillium", "count": 1}}
    found = lines(values | {"jobs": {name: one for name in ("a", "b", "c", "d", "e")}})
    assert found["Queue"] == (
        "a, b: admitted at once; c, d, e: waits because queue research is short of chips, held by research/a,"
        " research/b (simulated for an empty cluster)"
    )
    assert found["Fits"] == "a, b, c and 2 more: unknown until you run `multislice preflight -s test`"


def test_a_stack_without_jobs_has_its_price_and_a_queue(values: Values) -> None:
    del values["job"]
    found = lines(values | {"jobs": {}})
    assert [*found] == ["Price", "Queue", "Verdict"]
    assert "the stack has no jobs" in found["Queue"]


def test_the_price_has_the_difference_to_what_is_deployed() -> None:
    values = own("dev")
    before = bill(parse(values), {}, None)
    same = lines(values, replace(NOTHING, deployed=before))["Price"]
    assert same == "$19.44 an hour ($466.56 a day) while deployed, unchanged"
    values["slices"]["trillium"]["count"] = 3
    more = lines(values, replace(NOTHING, deployed=before))["Price"]
    assert more.endswith("while deployed, +$9.72 an hour (+$233.28 a day) compared with what is deployed")


def test_the_verdict_has_the_only_value_to_correct_and_names_several() -> None:
    assert lines(stack_values("dev"))["Verdict"].startswith(
        "NO: `up` refuses this stack: correct cloud.project: expected"
    )
    assert lines(stack_values("prod"))["Verdict"] == (
        "NO: `up` refuses this stack: correct cloud.project, slices.cubes.capacity.project, image.reference,"
        " datasets.bucket (see `multislice review -s test --verbose`)"
    )


def test_a_value_that_cannot_be_checked_from_here_is_to_be_checked() -> None:
    values = own("dev")
    values["job"]["initial_weights"] = "gs://elsewhere/weights"
    assert lines(values)["Verdict"].startswith("perhaps: check datasets.bucket: expected elsewhere")


def test_a_submitted_job_has_its_own_price_and_nothing_for_which_a_stack_file_is_needed() -> None:
    values = own("dev")
    values["job"]["slices"]["count"] = 1
    found = submission_answers(review("test", parse(values), replace(NOTHING, workloads=[])))
    assert [(answer.title, answer.verdict) for answer in found] == [
        ("Price", "$9.72 an hour ($233.28 a day) while it runs"),
        ("Queue", "admitted at once"),
        ("Verdict", "nothing prevents it"),
    ]
