"""What becomes of a job by the rules of its JobSet when a pod ends."""

import re
from typing import Any


def action(jobset: Any, code: int | None, *, disrupted: bool = False) -> str:
    """Return what JobSet does when a pod ends with `code`, or with None because its program never ran.

    `disrupted`: it was evicted or its node is gone.
    """
    (replicated,) = jobset["spec"]["replicatedJobs"]
    rules = replicated["template"]["spec"]["podFailurePolicy"]["rules"]
    found = (_message(rule, code, disrupted) for rule in rules)
    matched = (f"{text} matching FailJob rule at index {index}" for index, text in enumerate(found) if text)
    reason, message = "PodFailurePolicy", next(matched, "")
    if not message:
        reason, message = "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    for rule in jobset["spec"]["failurePolicy"]["rules"]:
        patterns = rule.get("onJobFailureMessagePatterns", [""])
        if reason in rule.get("onJobFailureReasons", [reason]) and any(
            re.search(pattern, message) for pattern in patterns
        ):
            return rule["action"]
    return "RestartJobSet"


def _message(rule: Any, code: int | None, disrupted: bool) -> str:
    """Return what the Job controller says if the rule matches (kubernetes/pkg/controller/job/pod_failure_policy.go)."""
    if on_exit := rule.get("onExitCodes"):
        matches = code is not None and (code in on_exit["values"]) == (on_exit["operator"] == "In")
        text = (
            f"Container {on_exit['containerName']} for pod research/tiny-slice-0-0-abcde failed with exit code {code}"
        )
        return text if matches else ""
    (condition,) = rule["onPodConditions"]
    text = f"Pod research/tiny-slice-0-0-abcde has condition {condition['type']}"
    return text if disrupted and condition["type"] == "DisruptionTarget" else ""
