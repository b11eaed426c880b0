"""The rendered JobSet: the consequence of each way to end, and the environment of the pods."""

from dataclasses import replace
from typing import Any

import pytest

from infra.stack.jobset import render
from tests.infra.job_failure import action, replacements
from tests.infra.one_job import submitted
from tests.infra.recording import Values
from tests.infra.stack.settings.test_containers import rendered
from workloads.spec import ExitCode

ACTIONS = {
    ExitCode.CRASH: "RestartJob",
    ExitCode.PEER_LOST: "RestartJob",
    ExitCode.HANG: "RestartJobSet",
    ExitCode.SILENT_DAMAGE: "RestartJob",
    ExitCode.INVALID_SPEC: "FailJobSet",
    ExitCode.OUT_OF_MEMORY: "FailJobSet",
    ExitCode.DIVERGED: "FailJobSet",
    ExitCode.NO_CHECKPOINT: "FailJobSet",
    ExitCode.FUNCTION_RAISED: "FailJobSet",
    ExitCode.RESTARTS_USED_UP: "FailJobSet",
    ExitCode.BAD_HOST: "RestartJobSetAndIgnoreMaxRestarts",
    ExitCode.PREEMPTED: "RestartJobAndIgnoreMaxRestarts",
}
"""Where JobSet can restart one slice."""


def test_every_exit_code_has_an_action() -> None:
    assert set(ACTIONS) == set(ExitCode) - {ExitCode.DONE}


@pytest.mark.parametrize(
    ("code", "disrupted", "expected"),
    [
        *((code, False, action) for code, action in ACTIONS.items()),
        # A similar exit code is not mistaken for another.
        (200, False, "RestartJob"),
        *((code, True, "RestartJobAndIgnoreMaxRestarts") for code in (1, 137, 143)),
        (ExitCode.INVALID_SPEC, True, "FailJobSet"),
        # The pod never ran its program, because its node refused it.
        (None, False, "RestartJobAndIgnoreMaxRestarts"),
    ],
)
def test_an_exit_code_leads_to_its_action(values: Values, code: int | None, disrupted: bool, expected: str) -> None:
    with_gate = submitted(values)
    assert action(render(with_gate), code, disrupted=disrupted) == expected
    # A JobSet of others lacks the gate.
    for_all = expected.replace("RestartJobAnd", "RestartJobSetAnd") if expected != "RestartJob" else "RestartJobSet"
    without_gate = replace(with_gate, fleet=replace(with_gate.fleet, restarts_slices=False))
    assert action(render(without_gate), code, disrupted=disrupted) == for_all


@pytest.mark.parametrize(
    ("code", "records", "expected"),
    [
        (ExitCode.DIVERGED, True, "FailJobSet"),
        (ExitCode.PREEMPTED, True, "RestartJobSetAndIgnoreMaxRestarts"),
        # The nodes of a bad host are marked only by the trainer.
        (ExitCode.BAD_HOST, True, "RestartJobSet"),
        (ExitCode.CRASH, True, "RestartJobSet"),
        (ExitCode.DIVERGED, False, "RestartJobSet"),
        (ExitCode.PREEMPTED, False, "RestartJobSet"),
    ],
)
def test_exit_codes_of_a_program_have_their_meaning_only_with_records(
    values: Values, code: int, records: bool, expected: str
) -> None:
    assert action(rendered(values, records=records), code) == expected
    assert action(rendered(values, records=records), code, disrupted=True) == (
        expected if expected == "FailJobSet" else "RestartJobSetAndIgnoreMaxRestarts"
    )


def test_a_refused_pod_is_replaced_in_its_job_unless_jobset_would_have_to_create_followers_again(
    values: Values,
) -> None:
    assert replacements(render(submitted(values))) == 0
    values["job"]["slices"]["count"] = 1
    values["slices"]["trillium"]["topology"] = "2x2"
    values["teams"]["research"]["quota"]["trillium"] = 8
    assert replacements(render(submitted(values))) == 5


@pytest.mark.parametrize("kind", ["on-demand", "flex-start"])
def test_a_slice_that_jobset_does_not_place_replaces_a_refused_pod(values: Values, kind: str) -> None:
    if kind == "flex-start":
        values["slices"]["trillium"]["capacity"] = {"kind": kind, "max_run_hours": 2}
    else:
        values["scheduling"] = {"placement": "topology-aware"}
    assert replacements(render(submitted(values))) == 5


def test_the_time_that_a_job_may_hold_chips_is_counted_by_kueue(values: Values) -> None:
    values["job"]["max_hours"] = 0.0001
    rendered: Any = render(submitted(values))
    assert rendered["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] == "1"
