"""What runs in the pods of a job: image, command, environment and ports."""

import math
from collections.abc import Mapping
from typing import Any

from infra.names import METRICS_PORT_NAME, PRICE_KEY, PROGRAM, SLICE_CHECK, SLICES, TRAINER, price_name, secret_name
from infra.objects import Manifest
from infra.settings.jobs import ContainerJob, FunctionJob, Heartbeat, Job, Pathways
from infra.submission import Submission
from infra.tpu import SliceShape
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

PARALLELISM_VARIABLE = "JOBSET_REPLICATEDJOB_PARALLELISM"
"""Number of hosts of a slice. JobSet has a label for the number of slices but none for this."""
_LOGS: Manifest = {"name": "TPU_LOG_DIR", "value": "/tmp/libtpu"}
"""Folder for libtpu's logs. GKE's device plugin mounts a folder of the node that belongs to root over libtpu's own
choice, /tmp/tpu_logs, so that no other user can write there (https://github.com/skypilot-org/skypilot/pull/3947).
libtpu makes the folder but not its parents."""


def label(name: str, jobset_label: str) -> Manifest:
    """Return the variable `name` with the value of one of JobSet's labels of the pod."""
    return field(name, f"metadata.labels['jobset.sigs.k8s.io/{jobset_label}']")


def field(name: str, path: str) -> Manifest:
    """Return the variable `name` with the value of a field of the pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def of_a_tpu_container(submission: Submission) -> list[Manifest]:
    """Return what a container with chips is told on top of what GKE tells it.

    GKE is reported to set the three of MEGASCALE as well, but does not document when. Without them each slice would
    work alone, so they come from JobSet's labels. They are set on one slice too: JAX asks the metadata server for
    those that are missing (jax/_src/clusters/cloud_tpu_cluster.py).
    """
    return [
        _LOGS,
        {"name": PARALLELISM_VARIABLE, "value": str(submission.slices.hosts)},
        label("MEGASCALE_NUM_SLICES", "replicatedjob-replicas"),
        label("MEGASCALE_SLICE_ID", "job-index"),
        label("MEGASCALE_COORDINATOR_ADDRESS", "coordinator"),
    ]


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
    by_pathways = pathways_runtime(job) is not None
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
            *(pathways_variables() if by_pathways else ()),
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


PROXY_PORT, MANAGER_PORT, WORKER_PORT = 29000, 29001, 29005
PATHWAYS_PORTS = (PROXY_PORT, MANAGER_PORT, 29002, WORKER_PORT, 29006)
"""Those that the servers listen on; of the second of a pair no source says what for."""
PATHWAYS_VARIABLES = ("JAX_PLATFORMS", "JAX_BACKEND_TARGET", "XCLOUD_ENVIRONMENT", "PATHWAYS_HEAD")
"""Environment variables of the program by which JAX finds the proxy."""
WORKER = "worker"
"""Name of the workers' container."""
_MESSAGE_PORTS = (8471, 8080)
"""Of the TPU runtime: between hosts of a slice, and between slices."""


def pathways_runtime(job: Job) -> Pathways | None:
    """What the job says of Pathways; None: it runs without."""
    return job.pathways if isinstance(job, ContainerJob) else None


def colocated(shape: SliceShape) -> bool:
    """Whether the head shares the host of the worker: on a slice that has but one."""
    return not shape.multi_host


def pathways_servers(submission: Submission, pathways: Pathways) -> tuple[Manifest, Manifest]:
    """Resource manager and proxy, which run beside the program as long as it runs."""
    manager: Manifest = {
        "name": "resource-manager",
        "image": pathways.server_image,
        "args": [
            f"--server_port={MANAGER_PORT}",
            "--node_type=resource_manager",
            f"--instance_count={submission.slices.count}",
            f"--instance_type={submission.shape.pathways_instance}",
            _scratch(submission),
        ],
        "env": [
            label("HOST_ADDRESS", "coordinator"),
            label("JOBSET_NAME", "jobset-name"),
            label("REPLICATED_JOB_NAME", "replicatedjob-name"),
            # A system node has no chips to ask the metadata server for.
            {"name": "TPU_SKIP_MDS_QUERY", "value": "true"},
        ],
        "ports": [{"containerPort": port} for port in (MANAGER_PORT, 29002)],
        "restartPolicy": "Always",
    }
    proxy: Manifest = {
        "name": "proxy",
        "image": pathways.proxy_image,
        "args": [f"--server_port={PROXY_PORT}", _manager(), _scratch(submission)],
        "env": [_head()],
        "ports": [{"containerPort": PROXY_PORT}],
        "restartPolicy": "Always",
    }
    return manager, proxy


def pathways_worker(submission: Submission, pathways: Pathways) -> Manifest:
    """What runs on every host of the slices, and has its chips."""
    return {
        "name": WORKER,
        "image": pathways.server_image,
        "args": [f"--server_port={WORKER_PORT}", _manager(), _scratch(submission)],
        "env": [
            _head(),
            label("JOBSET_NAME", "jobset-name"),
            label("REPLICATED_JOB_NAME", "replicatedjob-name"),
            *of_a_tpu_container(submission),
            {"name": "MEGASCALE_GRPC_ENABLE_XOR_TRACER", "value": "false"},
            {"name": "XCLOUD_ENVIRONMENT", "value": "GCP"},
            {"name": "TPU_MIN_LOG_LEVEL", "value": "0"},
            {"name": "TF_CPP_MIN_LOG_LEVEL", "value": "0"},
        ],
        "ports": [{"containerPort": port} for port in (WORKER_PORT, 29006, *_MESSAGE_PORTS)],
    }


def pathways_variables() -> list[Manifest]:
    """By these JAX in the program finds the proxy in place of chips."""
    return [
        _head(),
        {"name": "JAX_PLATFORMS", "value": "proxy"},
        {"name": "JAX_BACKEND_TARGET", "value": f"grpc://$(PATHWAYS_HEAD):{PROXY_PORT}"},
        {"name": "XCLOUD_ENVIRONMENT", "value": "GCP"},
    ]


def _manager() -> str:
    return f"--resource_manager_address=$(PATHWAYS_HEAD):{MANAGER_PORT}"


def _scratch(submission: Submission) -> str:
    return f"--gcs_scratch_location={submission.folder}/pathways"


def _head() -> Manifest:
    return label("PATHWAYS_HEAD", "coordinator")
