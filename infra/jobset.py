"""A JobSpec rendered as a JobSet.

Owns the JobSet's fields and the rules that turn a host's exit into an action. Pure: declaring the
object is the business of `infra.training`, and Kueue alone decides when it runs, so `suspend` is
never set here. No time to live either: a JobSet that deleted itself would train again on `up`.

Pods stay on the pod network: on the host's network they would act as the node's service account
and lose their own. That costs some bandwidth between slices (https://github.com/apple/axlearn/pull/641).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import pulumi

from infra.accelerators import TPU_RESOURCE
from infra.capacity import Capacity, FlexStart, Queued
from infra.flavors import flavor_labels, tolerations
from infra.stack_file import SliceGroup
from workloads.spec import JOB_SPEC_VARIABLE, RUN_ID_VARIABLE, START_VARIABLE, ExitCode, JobSpec

type Manifest = dict[str, object]

JOBSET_NAMESPACE = "jobset-system"
SERVICE_ACCOUNT = "trainer"
"""Kubernetes service account of the pods, one in each team's namespace."""
CONTAINER = "trainer"

_REPLICATED_JOB = "slice"
_NODE_POOL = "cloud.google.com/gke-nodepool"
_JOB_KEY = "jobset.sigs.k8s.io/job-key"
"""Pod label that is the same for the hosts of one slice and for no others."""
_NAME_LIMIT = 63
_POD_SUFFIX = "-xxxxx"
_TERMINATION_GRACE_SECONDS = 60
"""Enough to write a checkpoint; a restart waits this long for a host that hangs."""
_TPU_METRICS_PORT = 8431
"""Where libtpu answers GKE's metrics agent (https://cloud.google.com/kubernetes-engine/docs/how-to/tpus)."""
_COORDINATOR_PORT = 8482
"""JAX's coordination service on Cloud TPU (jax/_src/clusters/cloud_tpu_cluster.py)."""

_FATAL = (ExitCode.INVALID_SPEC, ExitCode.OUT_OF_MEMORY, ExitCode.DIVERGED)
"""No restart can help."""
_NOT_THE_JOBS_FAULT = (ExitCode.BAD_HOST, ExitCode.PREEMPTED)


@dataclass(frozen=True)
class Submission:
    """A job and the place it is submitted to."""

    spec: JobSpec
    group_name: str
    group: SliceGroup
    namespace: str
    queue: str
    """LocalQueue in the namespace."""
    priority: str
    image: pulumi.Input[str]
    max_restarts: int


def longest_name(slices: int, hosts: int) -> int:
    """The most characters a JobSet's name may have so that its last pod's name is a DNS label."""
    return _NAME_LIMIT - len(f"-{_REPLICATED_JOB}-{slices - 1}-{hosts - 1}{_POD_SUFFIX}")


def render(submission: Submission) -> Manifest:
    """The JobSet."""
    slices = submission.spec.slices
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": submission.spec.name,
            "namespace": submission.namespace,
            "labels": {
                "kueue.x-k8s.io/queue-name": submission.queue,
                "kueue.x-k8s.io/priority-class": submission.priority,
            },
            **_annotations(submission.group.capacity),
        },
        "spec": {
            "failurePolicy": _failure_policy(submission.max_restarts),
            "replicatedJobs": [
                {
                    "name": _REPLICATED_JOB,
                    "replicas": slices.count,
                    "template": {
                        "spec": {
                            "parallelism": slices.hosts,
                            "completions": slices.hosts,
                            "completionMode": "Indexed",
                            "backoffLimit": 0,
                            "podFailurePolicy": _pod_failure_policy(),
                            "template": {"spec": _pod(submission)},
                        }
                    },
                }
            ],
        },
    }


def _annotations(capacity: Capacity) -> Manifest:
    match capacity:
        case Queued():
            limit = str(capacity.max_run_seconds)
            return {"annotations": {"provreq.kueue.x-k8s.io/maxRunDurationSeconds": limit}}
        case FlexStart():
            return {}
        case _:
            # One slice never straddles two node pools, and no pool serves two slices.
            return {"annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": _NODE_POOL}}


def _affinity(capacity: Capacity) -> Manifest:
    """Exclusive topology for pools without nodes, told to the scheduler and the autoscaler alone.

    JobSet lets followers through its webhook once their leader runs, but an empty pool gets its
    nodes only if the pods of all hosts wait for them. A queued request brings one slice by itself.
    """
    if not isinstance(capacity, FlexStart):
        return {}
    of_jobsets: Manifest = {"matchExpressions": [{"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}]}
    term: Manifest = {"topologyKey": _NODE_POOL, "labelSelector": of_jobsets}
    together = {**term, "matchLabelKeys": [_JOB_KEY]}
    apart = {**term, "mismatchLabelKeys": [_JOB_KEY], "namespaceSelector": {}}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"affinity": {"podAffinity": {required: [together]}, "podAntiAffinity": {required: [apart]}}}


def _failure_policy(max_restarts: int) -> Manifest:
    """What a failed Job means for the JobSet; the first rule that matches wins, else a counted restart.

    A pod failure policy has but one reason, `PodFailurePolicy`, whichever of its rules fired. The
    message of the Job controller tells them apart (kubernetes/pkg/controller/job/pod_failure_policy.go).
    """
    return {
        "maxRestarts": max_restarts,
        # A new attempt must not meet the coordinator of the one before it.
        "restartStrategy": "BlockingRecreate",
        "rules": [
            _failure_rule("FailAtOnce", "FailJobSet", [_exit_message(_FATAL)]),
            _failure_rule(
                "RestartUncounted",
                "RestartJobSetAndIgnoreMaxRestarts",
                [_exit_message(_NOT_THE_JOBS_FAULT), "^Pod .* has condition DisruptionTarget matching FailJob rule"],
            ),
        ],
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
    return f"^Container {CONTAINER} for pod .* failed with exit code ({alternatives}) matching FailJob rule"


def _pod_failure_policy() -> Manifest:
    """Fails the Job with a message that names the cause; other exits fail it as BackoffLimitExceeded."""
    return {
        "rules": [
            _exit_rule(_FATAL),
            # Eviction, preemption, node deletion: whatever code the dying process came to return.
            {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            _exit_rule(_NOT_THE_JOBS_FAULT),
        ]
    }


def _exit_rule(codes: Iterable[ExitCode]) -> Manifest:
    return {
        "action": "FailJob",
        "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": [int(code) for code in codes]},
    }


def _pod(submission: Submission) -> Manifest:
    return {
        "restartPolicy": "Never",
        "serviceAccountName": SERVICE_ACCOUNT,
        # The metadata server gives Google credentials; the pod has no business with the API server.
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": _TERMINATION_GRACE_SECONDS,
        "nodeSelector": flavor_labels(submission.group_name, submission.group),
        "tolerations": tolerations(submission.group),
        **_affinity(submission.group.capacity),
        "containers": [_container(submission)],
        # The default of 64 MiB is too small for libtpu's transfers between host and chips.
        "volumes": [{"name": "shared-memory", "emptyDir": {"medium": "Memory"}}],
    }


def _container(submission: Submission) -> Manifest:
    chips = str(submission.spec.slices.chips_per_host)
    return {
        "name": CONTAINER,
        "image": submission.image,
        "command": ["python", "-m", "workloads.training"],
        "env": [
            {"name": JOB_SPEC_VARIABLE, "value": submission.spec.model_dump_json()},
            _label_variable(RUN_ID_VARIABLE, "jobset.sigs.k8s.io/jobset-uid"),
            _label_variable(START_VARIABLE, "jobset.sigs.k8s.io/restart-attempt"),
        ],
        "ports": [
            {"name": "tpu-metrics", "containerPort": _TPU_METRICS_PORT},
            {"name": "coordinator", "containerPort": _COORDINATOR_PORT},
        ],
        # A pod has its host to itself, for it takes all chips: CPU and memory need no reservation.
        "resources": {
            "requests": {"cpu": "500m", "memory": "512Mi", TPU_RESOURCE: chips},
            "limits": {TPU_RESOURCE: chips},
        },
        "volumeMounts": [{"name": "shared-memory", "mountPath": "/dev/shm"}],
    }


def _label_variable(name: str, label: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}}
