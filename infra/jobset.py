"""A job rendered as a JobSet.

Owns the JobSet's own fields and the rules that turn a host's exit into an action; pods are those of
`infra.pods`, placement that of `infra.pods`. Pure: declaring the object is the business of
`infra.jobs`, and Kueue alone decides when it runs, so `suspend` is never set here.

What ends a job: success, failure, or `max_hours` of held chips, which Kueue counts over all
restarts and evictions and answers with a workload that is never admitted again. No time to live,
since a JobSet that deleted itself would train again on `up`. No `activeDeadlineSeconds`, since a
Job's clock starts anew with every restart, and its end is a failure that restarts all slices.

Pods stay on the pod network unless `host_network` says otherwise: on the host's network they act as
the node's service account and lose their own, but the pod network costs some bandwidth between
slices (https://github.com/apple/axlearn/pull/641).

Exit codes mean something of the trainer's alone. Any other program that ends with one other than 0 restarts all
slices, and that counts, unless its pod was disrupted. By Pathways the same holds of head and workers; the job has
succeeded when the head has, whatever the workers do then.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Literal

from infra import pods, programs
from infra.names import (
    HEAD,
    JOBSET_API_VERSION,
    MAX_TIME_LABEL,
    PRIORITY_LABEL,
    PROGRAM,
    QUEUE_LABEL,
    SLICE_CHECK,
    SLICES,
    TRAINER,
)
from infra.objects import Manifest
from infra.pods import head_template, pod_template
from infra.programs import container_name
from infra.settings.jobs import ContainerJob, Job, Pathways
from infra.submission import Submission
from workloads.spec import FATAL_CODES, ExitCode

_SECONDS_PER_HOUR = 3600
NOT_THE_JOBS_FAULT = (ExitCode.BAD_HOST, ExitCode.PREEMPTED)
"""Codes after which a restart uses up none of `max_restarts`."""


def render(submission: Submission) -> Manifest:
    """The JobSet."""
    runtime = programs.pathways_runtime(submission.job)
    kept = pods.slice_annotations(submission.groups, submission.placement)
    annotations = pods.request_annotations(submission.groups) | ({} if runtime else kept)
    return {
        "apiVersion": JOBSET_API_VERSION,
        "kind": "JobSet",
        "metadata": {
            "name": submission.job.name,
            "namespace": submission.namespace,
            "labels": _labels(submission.job),
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": {
            # Its name is a label of every pod, for whoever needs to be told where the others meet.
            "coordinator": {"replicatedJob": HEAD if runtime else SLICES, "jobIndex": 0, "podIndex": 0},
            "failurePolicy": _failure_policy(submission.job),
            **(_head_and_slices(submission, runtime, kept) if runtime else _slices_alone(submission)),
        },
    }


def _slices_alone(submission: Submission) -> Manifest:
    job = _indexed(submission, container_name(submission.job), submission.slices.hosts, pod_template(submission))
    return {"successPolicy": {"operator": "All"}, "replicatedJobs": [_replicated(SLICES, submission.slices.count, job)]}


def _head_and_slices(submission: Submission, runtime: Pathways, kept: Mapping[str, str]) -> Manifest:
    head = _indexed(submission, PROGRAM, 1, head_template(submission, runtime))
    slices = _indexed(submission, programs.WORKER, submission.slices.hosts, pod_template(submission))
    count, success = submission.slices.count, {"operator": "All", "targetReplicatedJobs": [HEAD]}
    if programs.colocated(submission.shape):
        # Together: the head goes where the worker is.
        return {
            "successPolicy": success,
            "replicatedJobs": [_replicated(HEAD, 1, head), _replicated(SLICES, count, slices)],
        }
    return {
        "successPolicy": success,
        # Workers ask the resource manager for their part as soon as they run.
        "startupPolicy": {"startupPolicyOrder": "InOrder"},
        "replicatedJobs": [
            _replicated(HEAD, 1, head, pods.head_annotations()),
            _replicated(SLICES, count, slices, kept),
        ],
    }


def _labels(job: Job) -> dict[str, str]:
    labels = {QUEUE_LABEL: job.team, PRIORITY_LABEL: job.priority}
    if job.max_hours:
        labels[MAX_TIME_LABEL] = str(math.ceil(job.max_hours * _SECONDS_PER_HOUR))
    return labels


def _indexed(submission: Submission, container: str, pods: int, template: Manifest) -> Manifest:
    """A Job of so many pods, whose end is told by `container`."""
    return {
        "parallelism": pods,
        "completions": pods,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": _pod_failure_rules(submission.job, container)},
        "template": template,
    }


def _replicated(name: str, replicas: int, job: Manifest, annotations: Mapping[str, str] | None = None) -> Manifest:
    metadata = {"metadata": {"annotations": dict(annotations)}} if annotations else {}
    return {"name": name, "replicas": replicas, "template": {**metadata, "spec": job}}


def _failure_policy(job: Job) -> Manifest:
    """What a failed Job means for the JobSet; the first rule that matches wins, else a counted restart.

    A pod failure policy has but one reason, `PodFailurePolicy`, whichever of its rules fired. The
    message of the Job controller tells them apart (kubernetes/pkg/controller/job/pod_failure_policy.go).
    """
    at_once, uncounted = [], ["^Pod .* has condition DisruptionTarget matching FailJob rule"]
    if not isinstance(job, ContainerJob):
        at_once = [_failure_rule("FailAtOnce", "FailJobSet", [_exit_message(FATAL_CODES)])]
        uncounted = [_exit_message(NOT_THE_JOBS_FAULT), *uncounted]
    return {
        "maxRestarts": job.max_restarts,
        # A new attempt must not meet the coordinator of the one before it.
        "restartStrategy": "BlockingRecreate",
        "rules": [*at_once, _failure_rule("RestartUncounted", "RestartJobSetAndIgnoreMaxRestarts", uncounted)],
    }


def _failure_rule(name: str, action: str, messages: list[str]) -> Manifest:
    return {
        "name": name,
        "action": action,
        "onJobFailureReasons": ["PodFailurePolicy"],
        "onJobFailureMessagePatterns": messages,
    }


def _exit_message(codes: Iterable[ExitCode]) -> str:
    alternatives = "|".join(str(int(code)) for code in codes)
    return f"^Container {TRAINER} for pod .* failed with exit code ({alternatives}) matching FailJob rule"


def _pod_failure_rules(job: Job, container: str) -> list[Manifest]:
    """Fails the Job with a message that names the first pod that failed and its exit code."""
    # Eviction, preemption, node deletion: whatever code the dying process came to return.
    disrupted: Manifest = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    # Any other code. Without this rule the Job fails as BackoffLimitExceeded and names no pod; a host
    # that was killed leaves no word of its own.
    if isinstance(job, ContainerJob):
        checks = [SLICE_CHECK] if job.check_slices else []
        return [disrupted, *(_exit_rule(name, (ExitCode.DONE,), "NotIn") for name in (*checks, container))]
    return [
        _exit_rule(container, FATAL_CODES),
        disrupted,
        _exit_rule(container, NOT_THE_JOBS_FAULT),
        _exit_rule(container, (*FATAL_CODES, *NOT_THE_JOBS_FAULT), "NotIn"),
    ]


def _exit_rule(container: str, codes: Iterable[ExitCode], operator: Literal["In", "NotIn"] = "In") -> Manifest:
    return {
        "action": "FailJob",
        "onExitCodes": {
            "containerName": container,
            "operator": operator,
            "values": sorted(int(code) for code in codes),
        },
    }
