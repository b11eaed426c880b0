"""Answers from what other commands found, with the files of a run as the trainer writes them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.confirm import questions
from cli.confirm.confirm import confirmation
from cli.confirm.questions import Evidence, Found
from cli.confirm.record import Answer
from cli.doctor.checks import Check, Verdict
from infra.review.preview import Drift
from infra.settings.read import parse
from tests.infra.recording import Values
from tests.infra.review.known import own
from tests.workloads.report.runs import began, crashed_and_resumed, event, history, step, write_run
from workloads.preflight_result import QUOTED_EFFICIENCY, PreflightResult, StepEstimate
from workloads.report.history import History

NO_DRIFT = Drift(stack="dev", objects=(), pending=(), errors=(), seconds=1)


def estimated(seconds: float, **more: Any) -> PreflightResult:
    step = StepEstimate(kernel_efficiency=QUOTED_EFFICIENCY, seconds=seconds, mfu=0.4, tokens_per_second_per_chip=1)
    about = {"key": "k", "versions": {}, "generation": "v6e", "topology": "2x4", "slices": 2, "chips": 16}
    return PreflightResult(**about, steps=(step,), **more)


def evidence(*runs: History, values: Values | None = None, **changes: Any) -> Evidence:
    found = Evidence(
        settings=parse(values or own("dev")),
        checks=(),
        drift=NO_DRIFT,
        policies=3,
        histories={"tiny": runs},
        preflights={},
    )
    return replace(found, **changes)


@pytest.fixture
def resumed(tmp_path: Path) -> History:
    return history(crashed_and_resumed(tmp_path, 1.0, 1.0))


@pytest.fixture
def nothing() -> Evidence:
    return evidence()


def test_without_evidence_no_question_is_answered(nothing: Evidence) -> None:
    unknown = (
        *(questions.access, questions.node_pools, questions.saves, questions.steps, questions.memory),
        *(questions.speed, questions.attention, questions.compile_cache, questions.several_slices),
        *(questions.recovery, questions.notice),
    )
    assert [question.__name__ for question in unknown if question(nothing)] == []


def test_a_job_that_takes_steps_confirms_what_a_job_needs(resumed: History) -> None:
    found = evidence(resumed)
    assert questions.steps(found) == Found(holds=True, values={"steps": 7})
    assert questions.several_slices(found) == Found(holds=True, values={"slices": 2})
    assert questions.attention(found) is None, "no kernel was tried"
    assert questions.compile_cache(found) == Found(holds=True, values={"first seconds": 4, "later seconds": 1})


@pytest.mark.parametrize(("kernel", "holds"), [("fused", True), ("reference", False)])
def test_the_kernel_that_was_chosen_comes_with_what_each_kernel_took(tmp_path: Path, kernel: str, holds: bool) -> None:
    tried = event(6, "AttentionTried", kernel="fused", milliseconds=1.23456, difference=0.001)
    chosen = event(7, "AttentionChosen", kernel=kernel, chips="v6e", reason="any")
    found = questions.attention(evidence(history(write_run(tmp_path, {"0-0": [began(5), tried, chosen]}, {}))))
    assert found == Found(holds, {"kernel": kernel, "fused milliseconds": 1.235, "fused difference": 0.001})


def test_recovery_is_the_time_that_a_restart_took(resumed: History) -> None:
    found = questions.recovery(evidence(resumed))
    assert found
    assert found.values["restarts"] == 1
    assert found.values["longest recovery seconds"] == pytest.approx(37 - 1 - 15.5, abs=1.5)


@pytest.mark.parametrize(("seconds", "holds"), [(1.05, True), (1.5, False), (0.5, False)])
def test_an_estimate_is_compared_with_the_median_step(resumed: History, seconds: float, holds: bool) -> None:
    found = questions.speed(evidence(resumed, preflights={"tiny": estimated(seconds)}))
    assert found
    assert (found.holds, found.values["estimated over measured"]) == (holds, seconds)


def test_memory_is_judged_only_for_a_job_that_should_fit_and_ran(resumed: History) -> None:
    fits = {"tiny": estimated(1, fits=True, peak_gib=24, usable_gib=30)}
    assert questions.memory(evidence(resumed, preflights=fits)) == Found(
        holds=True, values={"out of memory": 0, "largest share of memory": 0.8}
    )
    assert questions.memory(evidence(preflights=fits)) is None


def preempted(storage: Path, *, saves: bool) -> History:
    saved = [event(12, "save", step=2 if saves else 0, blocking_seconds=3)]
    opened = event(9, "RunStarted", run="one", outcome="new", step=0, steps=5)
    stop = event(13, "stop", cause="preempted", message="", code="PREEMPTED")
    return history(write_run(storage, {"0-0": [began(5), opened, *saved, stop]}, {"0-0": [step(1, 10)]}))


def test_a_preempted_host_that_could_not_save_does_not_confirm_the_notice(tmp_path: Path) -> None:
    for name, saves in (("saved", True), ("lost", False)):
        (tmp_path / name).mkdir()
        found = questions.notice(evidence(preempted(tmp_path / name, saves=saves)))
        assert found
        assert (found.holds, found.values["saved"]) == (saves, int(saves))


def test_a_kind_of_capacity_is_confirmed_only_by_a_job_that_can_use_no_other(resumed: History) -> None:
    values = own("staging")
    histories = {values["job"]["name"]: (resumed,)}
    assert questions.on_capacity(evidence(values=values, histories=histories), "flex-start")
    assert questions.on_capacity(evidence(resumed), "flex-start") is None


def test_checks_and_drift_that_fail_differ() -> None:
    checks = (
        Check(group="quota", subject="a", verdict=Verdict.OK, says=""),
        Check(group="quota", subject="b", verdict=Verdict.FAILED, says="too few"),
        Check(group="DNS", subject="c", verdict=Verdict.FAILED, says=""),
    )
    assert questions.access(evidence(checks=checks)) == Found(holds=False, values={"checks": 2, "failed": 1})
    refused = NO_DRIFT.model_copy(update={"errors": ("no",)})
    assert questions.preview(evidence(drift=refused)) == Found(holds=False, values={"errors": 1})
    assert questions.second_preview(evidence(drift=refused)) is None
    assert questions.policies(evidence(policies=0)) == Found(holds=False, values={"policies": 0})


def answers(found: Evidence, *, sandbox: bool) -> Mapping[str, Answer]:
    return {answer.item: answer for answer in confirmation(found, sandbox=sandbox).answers}


def test_a_sandbox_answers_nothing_about_chips_or_google_cloud(resumed: History) -> None:
    here, there = (answers(evidence(resumed), sandbox=sandbox) for sandbox in (True, False))
    assert (here["speed"].result, here["speed"].why) == ("not asked", "needs chips")
    assert (here["plugins"].result, here["plugins"].why) == ("not asked", "needs Google Cloud")
    assert (there["step"].result, there["plugins"].result) == ("confirmed", "confirmed")
    assert here["megascale"].result == there["megascale"].result == "confirmed"
    assert (there["workflows"].why, there["speed"].why) == ("a person has to look", "no evidence")


def test_no_name_of_the_stack_is_in_the_file(resumed: History) -> None:
    values = own("dev")
    values["cloud"]["project"], values["cluster"]["name"] = "secret-project", "secret-cluster"
    values["job"]["name"] = "secret-job"
    found = evidence(resumed, values=values, histories={"secret-job": (resumed,)})
    text = confirmation(found, sandbox=False).model_dump_json()
    assert "secret" not in text
    assert all(name not in text for name in ("research", "us-east5", "trillium"))
