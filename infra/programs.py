"""What runs in the pods of a job: image, command, environment and ports.

Owns what a program is told. What its pod is given beside that is the business of `infra.pods`.

The hosts of a slice find each other by TPU_WORKER_ID and TPU_WORKER_HOSTNAMES. GKE's webhook sets them for an Indexed
Job with a subdomain, several pods and chips, as JobSet makes them
(https://cloud.google.com/kubernetes-engine/docs/how-to/tpus). The variables of several slices are in `infra.variables`.
"""

import math
from collections.abc import Mapping
from typing import Any

from infra import pathways
from infra.names import (
    METRICS_PORT_NAME,
    PRICE_KEY,
    PROGRAM,
    SLICE_CHECK,
    SLICES,
    TRAINER,
    Manifest,
    price_name,
    secret_name,
)
from infra.settings.jobs import ContainerJob, FunctionJob, Heartbeat, Job
from infra.submission import Submission
from infra.variables import PARALLELISM_VARIABLE, field, label, of_a_tpu_container
from workloads.spec import (
    CALL_KEY_VARIABLE,
    CALL_SPEC_VARIABLE,
    IMAGE_VARIABLE,
    JOB_FOLDER_VARIABLE,
    JOB_SPEC_VARIABLE,
    LIBTPU_VARIABLE,
    METRICS_ADDRESS_VARIABLE,
    METRICS_PORT,
    NODE_VARIABLE,
    PRICE_VARIABLE,
    RUN_ID_VARIABLE,
    SLICES_VARIABLE,
    START_VARIABLE,
    JobSpec,
    rendered,
)

TPU_METRICS_PORT = 8431
"""Where libtpu answers GKE's metrics agent (https://cloud.google.com/kubernetes-engine/docs/how-to/tpus)."""
TPU_METRICS_PORT_NAME = "tpu-metrics"
_COORDINATOR_PORT = 8482
"""JAX's coordination service on Cloud TPU (jax/_src/clusters/cloud_tpu_cluster.py)."""
_COMPILE_CACHE = "JAX_COMPILATION_CACHE_DIR"
"""Read by JAX (https://docs.jax.dev/en/latest/persistent_compilation_cache.html)."""
_PROBE_SECONDS = 10
_FILE_FAILURES = 3
_IS_YOUNG = 'test "$(( $(date +%s) - $(stat -c %Y "$0") ))" -le "$1"'
_PLATFORMS: Manifest = {"name": "JAX_PLATFORMS", "value": "tpu,cpu"}
"""What is named must be there: without libtpu or chips JAX says so rather than train on the host's CPU. JAX's own
choice on a host with both (jax/_src/cloud_tpu_init.py)."""
_USUAL_VARIABLES = {
    # PyTorch/XLA asks which device it is on (https://docs.pytorch.org/xla/master/learn/pjrt.html); JAX finds out.
    "PJRT_DEVICE": "TPU",
    # The user of the pod has no home in a foreign image, whose files it may not write.
    "HOME": "/tmp",
}
"""Of programs that are not ours, unless the stack file says otherwise."""
TAKEN_VARIABLES = frozenset(
    (
        *(JOB_SPEC_VARIABLE, CALL_SPEC_VARIABLE, CALL_KEY_VARIABLE, IMAGE_VARIABLE, PRICE_VARIABLE),
        *(RUN_ID_VARIABLE, START_VARIABLE, NODE_VARIABLE),
        *(JOB_FOLDER_VARIABLE, METRICS_ADDRESS_VARIABLE, PARALLELISM_VARIABLE, _COMPILE_CACHE),
        *("HOST_BOUNDS", "CHIPS_PER_HOST_BOUNDS"),
        *("PATH", "HOME", "HOSTNAME", "TMPDIR"),
    )
)
"""Variables of a pod that are this module's, the TPU device plugin's, or the container's own."""
TAKEN_PREFIXES = ("TPU_", "MEGASCALE_", "JOB_", "KUBERNETES_", "JAX_", "XLA_", "LIBTPU_", "LD_", "PYTHON")
"""Of variables that GKE's webhook and device plugin, the Job controller and kubelet set, or that the
trainer's programs read as they start."""


def program(submission: Submission) -> Manifest:
    """The part of the container that says what runs in it."""
    if isinstance(submission.job, ContainerJob):
        return _container(submission, submission.job)
    if isinstance(submission.job, FunctionJob):
        return _python(submission, "workloads.call", {CALL_SPEC_VARIABLE: submission.job.call.model_dump_json()})
    assert submission.spec, "a training job has a specification"
    return _trainer(submission, submission.spec)


def container_name(job: Job) -> str:
    """Of the job's only container, by which its end is told."""
    return PROGRAM if isinstance(job, ContainerJob) else TRAINER


def _trainer(submission: Submission, spec: JobSpec) -> Manifest:
    program = _python(submission, "workloads.training", {JOB_SPEC_VARIABLE: spec.model_dump_json()})
    if spec.libtpu_args:
        program["env"].append({"name": LIBTPU_VARIABLE, "value": rendered(spec.libtpu_args)})
    program["env"].append(field(METRICS_ADDRESS_VARIABLE, "status.podIP"))
    program["ports"].append({"name": METRICS_PORT_NAME, "containerPort": METRICS_PORT})
    return program


def _python(submission: Submission, module: str, told: Mapping[str, str]) -> dict[str, Any]:
    """A module of the trainer's image, with variables that tell it its task."""
    cache = submission.compile_cache
    return {
        "name": TRAINER,
        "image": submission.image,
        "command": ["python", "-m", module],
        "env": [
            *({"name": name, "value": value} for name, value in told.items()),
            {"name": IMAGE_VARIABLE, "value": submission.image},
            *_of_the_run(submission),
            *of_a_tpu_container(submission),
            _PLATFORMS,
            *([{"name": _COMPILE_CACHE, "value": cache}] if cache else ()),
            *_secrets(submission),
        ],
        "ports": [
            {"name": TPU_METRICS_PORT_NAME, "containerPort": TPU_METRICS_PORT},
            {"name": "coordinator", "containerPort": _COORDINATOR_PORT},
        ],
    }


def _container(submission: Submission, job: ContainerJob) -> Manifest:
    by_pathways = pathways.runtime(job) is not None
    usual = {"HOME": _USUAL_VARIABLES["HOME"]} if by_pathways else _USUAL_VARIABLES
    named = {name: list(words) for name, words in (("command", job.command), ("args", job.args)) if words}
    return {
        "name": PROGRAM,
        "image": submission.image,
        **named,
        "env": [
            {"name": JOB_FOLDER_VARIABLE, "value": submission.folder},
            *_of_the_run(submission),
            *(() if by_pathways else of_a_tpu_container(submission)),
            *({"name": name, "value": value} for name, value in (usual | dict(job.env)).items()),
            *(pathways.variables() if by_pathways else ()),
            *_secrets(submission),
        ],
        **(_probes(job.heartbeat) if job.heartbeat else {}),
        "ports": [
            *([] if by_pathways else [{"name": TPU_METRICS_PORT_NAME, "containerPort": TPU_METRICS_PORT}]),
            *({"name": name, "containerPort": port} for name, port in job.ports.items()),
        ],
    }


def slice_check(submission: Submission) -> Manifest:
    """The part of the init container that says what runs in it.

    Whether GKE's webhook tells init containers their place in the slice is not documented, so it comes from labels.
    """
    name = submission.job.name
    hosts = (f"{name}-{SLICES}-$(MEGASCALE_SLICE_ID)-{host}.{name}" for host in range(submission.slices.hosts))
    return {
        "name": SLICE_CHECK,
        "image": submission.checking_image,
        "command": ["python", "-m", "workloads.training.check_host"],
        "env": [
            {"name": SLICES_VARIABLE, "value": submission.slices.model_dump_json()},
            {"name": JOB_FOLDER_VARIABLE, "value": submission.folder},
            *_of_the_run(submission),
            *of_a_tpu_container(submission),
            field("TPU_WORKER_ID", "metadata.labels['batch.kubernetes.io/job-completion-index']"),
            {"name": "TPU_WORKER_HOSTNAMES", "value": ",".join(hosts)},
            _PLATFORMS,
        ],
    }


def _probes(heartbeat: Heartbeat) -> Manifest:
    """Return the probes by which kubelet ends a container without a sign of life."""
    seconds = {"periodSeconds": _PROBE_SECONDS, "timeoutSeconds": _PROBE_SECONDS}
    attempts = math.ceil(heartbeat.start_minutes * 60 / _PROBE_SECONDS)
    if heartbeat.file:
        # The file tells of the silence by its age. Several attempts, since one may fail for want of processor time.
        exists: list[str] = ["test", "-e", heartbeat.file]
        young = ["sh", "-c", _IS_YOUNG, heartbeat.file, str(heartbeat.silence_seconds)]
        first, later, failures = {"exec": {"command": exists}}, {"exec": {"command": young}}, _FILE_FAILURES
    else:
        asked = {"httpGet": {"path": heartbeat.path}} if heartbeat.path else {"tcpSocket": {}}
        first = later = {kind: {**request, "port": heartbeat.port} for kind, request in asked.items()}
        failures = math.ceil(heartbeat.silence_seconds / _PROBE_SECONDS)
    return {
        "startupProbe": {**first, **seconds, "failureThreshold": attempts},
        "livenessProbe": {**later, **seconds, "failureThreshold": failures},
    }


def _of_the_run(submission: Submission) -> list[Manifest]:
    """Which run and start of the job it is, what it costs, and where the pod is."""
    return [
        label(RUN_ID_VARIABLE, "jobset-uid"),
        label(START_VARIABLE, "restart-attempt"),
        _price_variable(submission.job),
        field(NODE_VARIABLE, "spec.nodeName"),
    ]


def _price_variable(job: Job) -> Manifest:
    # By reference, since a price in the pod template would be a change that replaces the running job.
    reference = {"name": price_name(job.name), "key": PRICE_KEY, "optional": True}
    return {"name": PRICE_VARIABLE, "valueFrom": {"configMapKeyRef": reference}}


def _secrets(submission: Submission) -> list[Manifest]:
    kept = secret_name(submission.job.name)
    return [{"name": name, "valueFrom": {"secretKeyRef": {"name": kept, "key": name}}} for name in submission.secrets]
