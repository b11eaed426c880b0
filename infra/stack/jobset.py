"""Renders a job as a JobSet: its fields, and what the exit of a host means for the job.

A job ends by success, by failure, or after it has held chips for `max_hours`. Kueue counts those over all restarts and
evictions, and then never admits the workload again. A JobSet has no time to live, because `up` would create it again
and repeat the training. It has no `activeDeadlineSeconds` either, because a Job's clock starts again with every restart
and its end is a failure that restarts all slices. `suspend` is never set: only Kueue decides when a job runs.

Pods stay on the pod network unless `host_network` is set. On the host's network they act as the node's service account
and lose their own. The pod network costs some bandwidth between slices
(https://github.com/apple/axlearn/pull/641).

A pod that never ran its program has no exit code. Kubelet refuses pods while Google repairs a machine, which takes
minutes. Such a pod costs no counted restart (`_REFUSALS`).

The pods of the trainer stay when its processes end (`multislice_run.supervisor`). So the exit of one of its pods
concerns its slice alone. If the stack installs JobSet, JobSet restarts only that slice, by its feature gate RestartJob.
It then counts restarts for each slice, and the number of restarts of the JobSet stays 0. The supervisors count restarts
of processes, so that `max_restarts` limits each of the two.

Only the exit codes of the trainer and of programs with `records` have a meaning. Any other program that exits with a
code other than 0 restarts all slices, which counts against `max_restarts` unless its pod was disrupted. The same is
true for head and workers of Pathways. Such a job succeeds when its head succeeds, whatever the workers do afterwards.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Literal

from infra.stack.manifests import Manifest, manifest
from infra.stack.names import (
    EXCLUSIVE,
    HEAD,
    HOST_LABEL,
    JOBSET_API_VERSION,
    MAX_TIME_LABEL,
    PRIORITY_LABEL,
    QUEUE_LABEL,
    SECONDS_PER_HOUR,
    SLICE_CHECK,
    SLICES,
    WORKER,
)
from infra.stack.pods import Pods, render_pods, slice_binding
from infra.stack.settings.jobs import AnyJob, FunctionJob
from infra.stack.submission import Submission
from multislice_run.exit_codes import FATAL_CODES, ExitCode, Reaction, codes

_DISRUPTED = "^Pod .* has condition DisruptionTarget matching FailJob rule"
_REFUSALS = 5
"""Number of times that a Job replaces a pod that never ran its program, after 10, 20, 40, 80 and 160 seconds
(kubernetes/pkg/controller/job/job_controller.go). Then all slices restart, uncounted, and the Job counts from 0."""


def render(submission: Submission) -> Manifest:
    """Return the JobSet of a job."""
    job, pods = submission.job, render_pods(submission)
    annotations = {**pods.requests, **({} if pods.head else pods.together)}
    spec: Manifest = {
        # JobSet labels every pod with the coordinator's name, from which the hosts know where to meet.
        "coordinator": {"replicatedJob": HEAD if pods.head else SLICES, "jobIndex": 0, "podIndex": 0},
        "failurePolicy": _failure_policy(submission),
        **(_head_and_slices(submission, pods.head, pods) if pods.head else _slices(submission, pods)),
    }
    return manifest(
        JOBSET_API_VERSION,
        "JobSet",
        job.name,
        submission.namespace,
        labels=_labels(submission),
        annotations=annotations,
        spec=spec,
    )


def _slices(submission: Submission, pods: Pods) -> Manifest:
    job = _slice_job(submission, submission.job.container, pods.slices)
    return {
        "successPolicy": {"operator": "All"},
        "replicatedJobs": [_add_replicas(SLICES, submission.slices.count, job)],
    }


def _head_and_slices(submission: Submission, head_template: Manifest, pods: Pods) -> Manifest:
    head = _indexed_job(submission, submission.job.container, 1, head_template, _REFUSALS)
    slices = _slice_job(submission, WORKER, pods.slices)
    count, success = submission.slices.count, {"operator": "All", "targetReplicatedJobs": [HEAD]}
    if submission.shares_host:
        # Both start at the same time, because the head runs on the worker's host.
        return {
            "successPolicy": success,
            "replicatedJobs": [_add_replicas(HEAD, 1, head), _add_replicas(SLICES, count, slices)],
        }
    return {
        "successPolicy": success,
        # Workers call the resource manager as soon as they run.
        "startupPolicy": {"startupPolicyOrder": "InOrder"},
        # A system node runs one head.
        "replicatedJobs": [
            _add_replicas(HEAD, 1, head, {EXCLUSIVE: HOST_LABEL}),
            _add_replicas(SLICES, count, slices, pods.together),
        ],
    }


def _labels(submission: Submission) -> dict[str, str]:
    job = submission.job
    labels = {QUEUE_LABEL: submission.queue, PRIORITY_LABEL: f"{submission.fleet.prefix}{job.priority}"}
    if job.max_hours:
        labels[MAX_TIME_LABEL] = str(math.ceil(job.max_hours * SECONDS_PER_HOUR))
    return labels


def _slice_job(submission: Submission, container: str, template: Manifest) -> Manifest:
    hosts = submission.slices.hosts
    # JobSet creates no follower while its Job has two leaders, a refused one and its replacement
    # (jobset/pkg/webhooks/pod_webhook.go). So the Job fails at once, and all slices restart without a pause.
    binding = slice_binding(submission.groups.values(), submission.fleet.scheduling.placement)
    led = hosts > 1 and binding == "exclusive-topology"
    return _indexed_job(submission, container, hosts, template, 0 if led else _REFUSALS)


def _indexed_job(submission: Submission, container: str, pods: int, template: Manifest, replacements: int) -> Manifest:
    """Return a Job of `pods` pods, each of which ends when `container` ends.

    `replacements` limits how many pods that never ran their program are replaced.
    """
    return {
        "parallelism": pods,
        "completions": pods,
        "completionMode": "Indexed",
        "backoffLimit": replacements,
        "podFailurePolicy": {"rules": _pod_failure_rules(submission.job, container)},
        "template": template,
    }


def _add_replicas(name: str, replicas: int, job: Manifest, annotations: Mapping[str, str] | None = None) -> Manifest:
    metadata = {"metadata": {"annotations": dict(annotations)}} if annotations else {}
    return {"name": name, "replicas": replicas, "template": {**metadata, "spec": job}}


def _failure_policy(submission: Submission) -> Manifest:
    """Return what a failed Job means for the JobSet. The first matching rule applies; without one all slices restart,
    and the restart counts.

    A pod failure policy has only one reason, `PodFailurePolicy`, for all of its rules. The message of the Job
    controller distinguishes them (kubernetes/pkg/controller/job/pod_failure_policy.go).
    """
    job = submission.job
    fatal, uncounted = [], [_DISRUPTED]
    if job.records:
        fatal = [_failure_rule("FailAtOnce", "FailJobSet", [_exit_message(job.container, FATAL_CODES)])]
        uncounted = [_exit_message(job.container, job.uncounted_codes), *uncounted]
    if submission.spec and submission.fleet.restarts_slices:
        rules = [*fatal, *_rules_of_slices(job.container)]
    else:
        rules = [
            *fatal,
            _failure_rule("RestartUncounted", "RestartJobSetAndIgnoreMaxRestarts", uncounted),
            _never_ran("RestartJobSetAndIgnoreMaxRestarts"),
        ]
    return {
        "maxRestarts": job.max_restarts,
        # A new attempt must not meet the coordinator of the previous one.
        "restartStrategy": "BlockingRecreate",
        "rules": rules,
    }


def _rules_of_slices(container: str) -> list[Manifest]:
    """Return the rules of a trainer whose pods stay when its processes end, so that a pod's end is its slice's own."""
    return [
        _failure_rule(
            "RestartAllUncounted",
            "RestartJobSetAndIgnoreMaxRestarts",
            [_exit_message(container, codes(Reaction.RESTART_JOB, counts=False))],
        ),
        _failure_rule(
            "RestartAll", "RestartJobSet", [_exit_message(container, codes(Reaction.RESTART_JOB, counts=True))]
        ),
        _failure_rule(
            "RestartUncounted",
            "RestartJobAndIgnoreMaxRestarts",
            [_exit_message(container, codes(Reaction.RESTART_SLICE, counts=False)), _DISRUPTED],
        ),
        _never_ran("RestartJobAndIgnoreMaxRestarts"),
        {"name": "RestartSlice", "action": "RestartJob"},
    ]


def _never_ran(action: str) -> Manifest:
    # Every exit code has a rule of the pod failure policy. Only pods that never ran their program have none.
    return {"name": "RestartNeverRan", "action": action, "onJobFailureReasons": ["BackoffLimitExceeded"]}


def _failure_rule(name: str, action: str, messages: list[str]) -> Manifest:
    return {
        "name": name,
        "action": action,
        "onJobFailureReasons": ["PodFailurePolicy"],
        "onJobFailureMessagePatterns": messages,
    }


def _exit_message(container: str, codes: Iterable[ExitCode]) -> str:
    alternatives = "|".join(str(int(code)) for code in codes)
    return f"^Container {container} for pod .* failed with exit code ({alternatives}) matching FailJob rule"


def _pod_failure_rules(job: AnyJob | FunctionJob, container: str) -> list[Manifest]:
    """Return rules that fail the Job with a message that names the first failed pod and its exit code."""
    # Eviction, preemption or a deleted node, whatever exit code the dying process returned.
    disrupted: Manifest = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    # The last rule is for any other code. Without it the Job would count the pod as one that never ran, and its message
    # would not name it.
    checks = [_exit_rule(SLICE_CHECK, (ExitCode.DONE,), "NotIn")] if job.check_slices else []
    if container == WORKER or not job.records:
        return [disrupted, *checks, _exit_rule(container, (ExitCode.DONE,), "NotIn")]
    return [
        _exit_rule(container, FATAL_CODES),
        disrupted,
        *checks,
        _exit_rule(container, job.uncounted_codes),
        _exit_rule(container, (*FATAL_CODES, *job.uncounted_codes), "NotIn"),
    ]


def _exit_rule(container: str, codes: Iterable[ExitCode], operator: Literal["In", "NotIn"] = "In") -> Manifest:
    values = sorted(int(code) for code in codes)
    return {
        "action": "FailJob",
        "onExitCodes": {"containerName": container, "operator": operator, "values": values},
    }
