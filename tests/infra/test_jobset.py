"""The rendered JobSet: the consequence of each way to end, and the environment of the pods."""

import re
from typing import Any, cast

import pytest

from infra.jobset import render
from infra.settings.read import parse
from infra.settings.stack import Settings
from tests.infra.one_job import only_spec, only_submission
from tests.infra.recording import Values
from workloads.spec import ExitCode, JobSpec

ACTIONS = {
    ExitCode.CRASH: "RestartJobSet",
    ExitCode.PEER_LOST: "RestartJobSet",
    ExitCode.HANG: "RestartJobSet",
    ExitCode.SILENT_DAMAGE: "RestartJobSet",
    ExitCode.INVALID_SPEC: "FailJobSet",
    ExitCode.OUT_OF_MEMORY: "FailJobSet",
    ExitCode.DIVERGED: "FailJobSet",
    ExitCode.NO_CHECKPOINT: "FailJobSet",
    ExitCode.FUNCTION_RAISED: "FailJobSet",
    ExitCode.BAD_HOST: "RestartJobSetAndIgnoreMaxRestarts",
    ExitCode.PREEMPTED: "RestartJobSetAndIgnoreMaxRestarts",
}


def _rendered(settings: Settings) -> Any:
    return render(only_submission(settings))


def _job(rendered: Any) -> Any:
    (replicated,) = rendered["spec"]["replicatedJobs"]
    return replicated["template"]["spec"]


def _job_failure(rendered: Any, code: int, conditions: frozenset[str]) -> tuple[str, str]:
    """Reason and message with which the Job controller fails the Job of a pod that ended like this."""
    for index, rule in enumerate(_job(rendered)["podFailurePolicy"]["rules"]):
        on_exit = rule.get("onExitCodes")
        if on_exit and (code in on_exit["values"]) == (on_exit["operator"] == "In"):
            text = f"Container trainer for pod research/tiny-slice-0-0-abcde failed with exit code {code}"
            return "PodFailurePolicy", f"{text} matching FailJob rule at index {index}"
        for condition in rule.get("onPodConditions", []):
            if condition["type"] in conditions:
                text = f"Pod research/tiny-slice-0-0-abcde has condition {condition['type']}"
                return "PodFailurePolicy", f"{text} matching FailJob rule at index {index}"
    raise AssertionError(f"no rule names the pod that ended with {code}")


def _action(rendered: Any, code: int, *conditions: str) -> str:
    reason, message = _job_failure(rendered, code, frozenset(conditions))
    for rule in rendered["spec"]["failurePolicy"]["rules"]:
        patterns = cast(list[str], rule["onJobFailureMessagePatterns"])
        if reason in rule["onJobFailureReasons"] and any(re.search(pattern, message) for pattern in patterns):
            return rule["action"]
    return "RestartJobSet"


def test_every_exit_code_has_an_action() -> None:
    assert set(ACTIONS) == set(ExitCode) - {ExitCode.DONE}


@pytest.mark.parametrize(("code", "action"), ACTIONS.items(), ids=[code.name for code in ACTIONS])
def test_an_exit_code_leads_to_its_action(values: Values, code: ExitCode, action: str) -> None:
    assert _action(_rendered(parse(values)), code) == action


@pytest.mark.parametrize("code", [1, 137, 143])
def test_a_disrupted_pod_restarts_uncounted_whatever_its_exit_code(values: Values, code: int) -> None:
    assert _action(_rendered(parse(values)), code, "DisruptionTarget") == "RestartJobSetAndIgnoreMaxRestarts"


def test_a_spec_that_cannot_work_fails_even_when_the_pod_was_disrupted(values: Values) -> None:
    assert _action(_rendered(parse(values)), ExitCode.INVALID_SPEC, "DisruptionTarget") == "FailJobSet"


def test_a_similar_exit_code_is_not_mistaken_for_another(values: Values) -> None:
    assert _action(_rendered(parse(values)), 200) == "RestartJobSet"


def test_slices_become_replicas_and_hosts_become_pods(values: Values) -> None:
    values["slices"]["trillium"] |= {"topology": "4x4", "count": 3}
    values["teams"]["research"]["quota"]["trillium"] = 48
    values["job"] |= {"slices": {"group": "trillium", "count": 3}, "training": {"global_batch": 48}}
    rendered = _rendered(parse(values))
    job = _job(rendered)
    assert rendered["spec"]["replicatedJobs"][0]["replicas"] == 3
    assert job["parallelism"] == job["completions"] == 4


def test_the_pods_get_the_whole_specification(values: Values) -> None:
    settings = parse(values)
    (container,) = _job(_rendered(settings))["template"]["spec"]["containers"]
    environment = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert JobSpec.model_validate_json(environment["JOB_SPEC"]) == only_spec(settings)
    assert "--megascale_grpc_enable_xor_tracer=false" in str(environment["LIBTPU_INIT_ARGS"])


def test_the_pods_get_the_minimum_number_of_slices(values: Values) -> None:
    values["job"]["slices"]["min_count"] = 1
    rendered = _rendered(settings := parse(values))
    assert rendered["spec"]["replicatedJobs"][0]["replicas"] == 2
    assert (only_spec(settings).slices.count, only_spec(settings).slices.min_count) == (2, 1)


def test_the_time_that_a_job_may_hold_chips_is_counted_by_kueue(values: Values) -> None:
    values["job"]["max_hours"] = 0.0001
    assert _rendered(parse(values))["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] == "1"


def test_kueue_alone_suspends_and_nothing_removes_a_finished_job(values: Values) -> None:
    assert not _rendered(parse(values))["spec"].keys() & {"suspend", "ttlSecondsAfterFinished"}
