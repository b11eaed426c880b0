"""The programs in the pods of a job: image, command, environment and ports.

The hosts of a slice find each other through TPU_WORKER_ID and TPU_WORKER_HOSTNAMES. GKE's webhook sets them for an
Indexed Job with a subdomain, several pods and chips, such as those of JobSet
(https://cloud.google.com/kubernetes-engine/docs/how-to/tpus).

The containers of Pathways are those of AI-Hypercomputer/pathways-utils (`pathwaysutils/experimental/gke/jobset.py`),
xpk (`pathways_workload_create.yaml.j2`) and google/pathways-job, which agree except for names, and of
https://docs.cloud.google.com/ai-hypercomputer/docs/workloads/pathways-on-cloud/pathways-intro. They differ where the
security of the cluster requires it: no folder of the host, no privileges, and the host's network only on request."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.stack.manifests import Manifest
from infra.stack.names import (
    COMPLETION_INDEX_LABEL,
    JOBSET_LABELS,
    LOCAL_CHECKPOINTS_FOLDER,
    METRICS_PORT_NAME,
    PRICE_KEY,
    SLICE_CHECK,
    SLICES,
    SUPERVISOR,
    WORKER,
    price_name,
    secret_name,
)
from infra.stack.settings.jobs import ContainerJob, FunctionJob, Heartbeat, JobSettings, Pathways, TrainingJob
from infra.stack.submission import Submission
from workloads.spec import (
    CALL_KEY_VARIABLE,
    CALL_SPEC_VARIABLE,
    HEARTBEAT_VARIABLE,
    IMAGE_VARIABLE,
    JOB_FOLDER_VARIABLE,
    JOB_SPEC_VARIABLE,
    LIBTPU_VARIABLE,
    LOCAL_CHECKPOINTS_VARIABLE,
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
"""Port on which libtpu answers GKE's metrics agent (https://cloud.google.com/kubernetes-engine/docs/how-to/tpus)."""
TPU_METRICS_PORT_NAME = "tpu-metrics"
PARALLELISM_VARIABLE = "JOBSET_REPLICATEDJOB_PARALLELISM"
"""Environment variable with the number of hosts of a slice. JobSet has a label for the number of slices only."""
PROXY_PORT, MANAGER_PORT, WORKER_PORT = 29000, 29001, 29005
_MANAGER = f"--resource_manager_address=$(PATHWAYS_HEAD):{MANAGER_PORT}"
PATHWAYS_PORTS = (PROXY_PORT, MANAGER_PORT, 29002, WORKER_PORT, 29006)
"""Ports on which the servers of Pathways listen. No source explains the second port of manager and worker."""
PATHWAYS_VARIABLES = ("JAX_PLATFORMS", "JAX_BACKEND_TARGET", "XCLOUD_ENVIRONMENT", "PATHWAYS_HEAD")
"""Environment variables with which JAX finds the proxy of Pathways."""

_COMPILE_CACHE = "JAX_COMPILATION_CACHE_DIR"
"""Variable that JAX reads (https://docs.jax.dev/en/latest/persistent_compilation_cache.html)."""
TAKEN_VARIABLES = frozenset(
    (
        *(JOB_SPEC_VARIABLE, CALL_SPEC_VARIABLE, CALL_KEY_VARIABLE, IMAGE_VARIABLE, PRICE_VARIABLE),
        *(RUN_ID_VARIABLE, START_VARIABLE, NODE_VARIABLE),
        *(JOB_FOLDER_VARIABLE, METRICS_ADDRESS_VARIABLE, PARALLELISM_VARIABLE, _COMPILE_CACHE),
        LOCAL_CHECKPOINTS_VARIABLE,
        *("HOST_BOUNDS", "CHIPS_PER_HOST_BOUNDS"),
        *("PATH", "HOME", "HOSTNAME", "TMPDIR"),
    )
)
"""Variables of a pod that are set by this module, the TPU device plugin or the container itself."""
TAKEN_PREFIXES = ("TPU_", "MEGASCALE_", "JOB_", "KUBERNETES_", "JAX_", "XLA_", "LIBTPU_", "LD_", "PYTHON")
"""Prefixes of variables that GKE's webhook and device plugin, the Job controller and kubelet set, or that the trainer's
programs read at start-up."""

_COORDINATOR_PORT = 8482
"""Port of JAX's coordination service on Cloud TPU (jax/_src/clusters/cloud_tpu_cluster.py)."""
_MESSAGE_PORTS = (8471, 8080)
"""Ports of the TPU runtime: between hosts of a slice, and between slices."""
_LOGS: Manifest = {"name": "TPU_LOG_DIR", "value": "/tmp/libtpu"}
"""Folder for libtpu's logs. GKE's device plugin mounts a folder of the node that belongs to root over libtpu's default,
/tmp/tpu_logs, so no other user can write there (https://github.com/skypilot-org/skypilot/pull/3947). libtpu creates the
folder but not its parents."""
_PLATFORMS: Manifest = {"name": "JAX_PLATFORMS", "value": "tpu,cpu"}
"""JAX's own choice on a host with both. Set explicitly, it makes JAX fail without libtpu or chips instead of training
on the host's CPU (jax/_src/cloud_tpu_init.py)."""
_METRICS: Manifest = {"name": METRICS_PORT_NAME, "containerPort": METRICS_PORT}
_METRICS_ADDRESS: Manifest = {
    "name": METRICS_ADDRESS_VARIABLE,
    "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
}
"""Address on which a program serves metrics. A container that has it keeps records
(`infra.cluster.job_state.kind_of`)."""
_DEFAULT_VARIABLES = {
    # PyTorch/XLA needs to know its device (https://docs.pytorch.org/xla/master/learn/pjrt.html); JAX detects it.
    "PJRT_DEVICE": "TPU",
    # The pod's user has no home in a foreign image, and may not write to the image's files.
    "HOME": "/tmp",
}
"""Default variables of programs other than the trainer. The stack file may override them."""
_PROXY_VARIABLES = {
    "JAX_PLATFORMS": "proxy",
    "JAX_BACKEND_TARGET": f"grpc://$(PATHWAYS_HEAD):{PROXY_PORT}",
    "XCLOUD_ENVIRONMENT": "GCP",
}
"""Variables with which JAX in a program finds the proxy of Pathways instead of chips."""
_PROBE_SECONDS = 10
_FILE_FAILURES = 3
_IS_YOUNG = 'test "$(( $(date +%s) - $(stat -c %Y "$0") ))" -le "$1"'


@dataclass(frozen=True)
class Containers:
    """The containers of one kind of pod: the parts that define their programs."""

    main: Manifest
    before: tuple[Manifest, ...] = ()
    """Containers that end, or as sidecars start, before `main` starts."""


def containers(submission: Submission) -> tuple[Containers, Containers | None]:
    """Return the containers of the pods with the chips, and of the head, which only a job with Pathways has."""
    program = _program(submission)
    if runtime := submission.job.pathways:
        return Containers(_pathways_worker(submission, runtime)), Containers(
            program, _pathways_servers(submission, runtime)
        )
    return Containers(program, (_slice_check(submission),) if submission.checking_image else ()), None


def _program(submission: Submission) -> Manifest:
    match submission.job:
        case ContainerJob() as job:
            return _container(submission, job)
        case FunctionJob() as job:
            return _python(submission, "workloads.call", {CALL_SPEC_VARIABLE: job.call.model_dump_json()})
        case TrainingJob():
            assert submission.spec, "a training job has a specification"
            return _trainer(submission, submission.spec)


def _trainer(submission: Submission, spec: JobSpec) -> Manifest:
    task = {JOB_SPEC_VARIABLE: spec.model_dump_json(), JOB_FOLDER_VARIABLE: spec.storage.path}
    program = _python(submission, "workloads.training", task)
    program["command"] = [*_supervisor(submission.job, spec), "--", *program["command"]]
    if spec.libtpu_args:
        program["env"].append({"name": LIBTPU_VARIABLE, "value": rendered(spec.libtpu_args)})
    if spec.local_states_gib:
        program["env"] += _plain({LOCAL_CHECKPOINTS_VARIABLE: LOCAL_CHECKPOINTS_FOLDER})
    program["env"].append(_METRICS_ADDRESS)
    program["ports"].append(_METRICS)
    return program


def _supervisor(job: JobSettings, spec: JobSpec) -> list[str]:
    """Return the command that runs the trainer, and starts it again in its pod."""
    limits = [f"--max-restarts={job.max_restarts}", f"--start-minutes={spec.training.start_minutes}"]
    if spec.slices.min_count is not None:
        limits += [f"--min-slices={spec.slices.min_count}", f"--wait-seconds={job.slices.wait_seconds}"]
    limits += [f"--grace-seconds={job.grace_seconds}", f"--slices={spec.slices.count}", f"--hosts={spec.slices.hosts}"]
    return ["python", "-m", SUPERVISOR, "--in-advance", *limits]


def _python(submission: Submission, module: str, task: Mapping[str, str]) -> dict[str, Any]:
    """Return a container that runs a module of the trainer's image, with the variables of its task."""
    cache, by_pathways = submission.compile_cache, submission.job.pathways is not None
    return {
        "name": submission.job.container,
        "image": submission.image,
        "command": ["python", "-m", module],
        "env": [
            *_plain(task),
            {"name": IMAGE_VARIABLE, "value": submission.image},
            *_of_the_run(submission),
            *((_head(), *_plain(_PROXY_VARIABLES)) if by_pathways else (*_of_a_tpu_container(submission), _PLATFORMS)),
            *(_plain({_COMPILE_CACHE: cache}) if cache else ()),
            *_secrets(submission),
        ],
        "ports": []
        if by_pathways
        else [
            {"name": TPU_METRICS_PORT_NAME, "containerPort": TPU_METRICS_PORT},
            {"name": "coordinator", "containerPort": _COORDINATOR_PORT},
        ],
    }


def _container(submission: Submission, job: ContainerJob) -> Manifest:
    by_pathways = job.pathways is not None
    defaults = {"HOME": _DEFAULT_VARIABLES["HOME"]} if by_pathways else _DEFAULT_VARIABLES
    named = {name: list(words) for name, words in (("command", job.command), ("args", job.args)) if words}
    return {
        "name": job.container,
        "image": submission.image,
        **named,
        "env": [
            {"name": JOB_FOLDER_VARIABLE, "value": submission.folder},
            *_of_the_run(submission),
            *(() if by_pathways else _of_a_tpu_container(submission)),
            *_plain(defaults | dict(job.env)),
            *((_head(), *_plain(_PROXY_VARIABLES)) if by_pathways else ()),
            *_secrets(submission),
            *(_of_records(job) if job.records else ()),
        ],
        **(_probes(job.heartbeat) if job.heartbeat else {}),
        "ports": [
            *([] if by_pathways else [{"name": TPU_METRICS_PORT_NAME, "containerPort": TPU_METRICS_PORT}]),
            *({"name": name, "containerPort": port} for name, port in job.ports.items()),
            *([_METRICS] if job.records else []),
        ],
    }


def _of_records(job: ContainerJob) -> list[Manifest]:
    """Return what `multislice_run` needs in addition to what every program gets."""
    file = job.heartbeat.file if job.heartbeat else None
    return [_METRICS_ADDRESS, *(_plain({HEARTBEAT_VARIABLE: file}) if file else ())]


def _slice_check(submission: Submission) -> Manifest:
    """Return the init container that checks the slice.

    GKE does not document whether its webhook gives init containers their position in the slice, so it comes from
    labels.
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
            *_of_a_tpu_container(submission),
            _of_field("TPU_WORKER_ID", f"metadata.labels['{COMPLETION_INDEX_LABEL}']"),
            {"name": "TPU_WORKER_HOSTNAMES", "value": ",".join(hosts)},
            _PLATFORMS,
        ],
    }


def _probes(heartbeat: Heartbeat) -> Manifest:
    """Return the probes with which kubelet ends a container that shows no sign of life."""
    seconds = {"periodSeconds": _PROBE_SECONDS, "timeoutSeconds": _PROBE_SECONDS}
    tries = math.ceil(heartbeat.start_minutes * 60 / _PROBE_SECONDS)
    if heartbeat.file:
        # The age of the file is the time of silence. Several tries, because one may fail for lack of CPU time.
        exists: list[str] = ["test", "-e", heartbeat.file]
        young = ["sh", "-c", _IS_YOUNG, heartbeat.file, str(heartbeat.silence_seconds)]
        first, later, failures = {"exec": {"command": exists}}, {"exec": {"command": young}}, _FILE_FAILURES
    else:
        request = {"httpGet": {"path": heartbeat.path}} if heartbeat.path else {"tcpSocket": {}}
        first = later = {kind: {**details, "port": heartbeat.port} for kind, details in request.items()}
        failures = math.ceil(heartbeat.silence_seconds / _PROBE_SECONDS)
    return {
        "startupProbe": {**first, **seconds, "failureThreshold": tries},
        "livenessProbe": {**later, **seconds, "failureThreshold": failures},
    }


def _of_the_run(submission: Submission) -> list[Manifest]:
    """Return variables with the run and attempt of the job, its price, and the pod's node."""
    # By reference, because a price in the pod template would be a change that replaces a running job of the stack.
    reference = {"name": price_name(submission.job.name), "key": PRICE_KEY, "optional": True}
    known = submission.usd_per_hour
    price = {"valueFrom": {"configMapKeyRef": reference}} if known is None else {"value": str(known)}
    return [
        _of_label(RUN_ID_VARIABLE, "jobset-uid"),
        _of_label(START_VARIABLE, "restart-attempt"),
        {"name": PRICE_VARIABLE, **price},
        _of_field(NODE_VARIABLE, "spec.nodeName"),
    ]


def _of_a_tpu_container(submission: Submission) -> list[Manifest]:
    """Return the variables that a container with chips needs in addition to those that GKE sets.

    Users report that GKE also sets the three MEGASCALE variables, but it does not document when. Without them each
    slice would work on its own, so they come from JobSet's labels. They are also set for a single slice, because JAX
    asks the metadata server for missing ones (jax/_src/clusters/cloud_tpu_cluster.py).
    """
    return [
        _LOGS,
        {"name": PARALLELISM_VARIABLE, "value": str(submission.slices.hosts)},
        _of_label("MEGASCALE_NUM_SLICES", "replicatedjob-replicas"),
        _of_label("MEGASCALE_SLICE_ID", "job-index"),
        _of_label("MEGASCALE_COORDINATOR_ADDRESS", "coordinator"),
    ]


def _of_label(name: str, label: str) -> Manifest:
    return _of_field(name, f"metadata.labels['{JOBSET_LABELS}/{label}']")


def _of_field(name: str, path: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _plain(variables: Mapping[str, str]) -> list[Manifest]:
    return [{"name": name, "value": value} for name, value in variables.items()]


def _secrets(submission: Submission) -> list[Manifest]:
    kept = secret_name(submission.job.name)
    return [{"name": name, "valueFrom": {"secretKeyRef": {"name": kept, "key": name}}} for name in submission.secrets]


def _pathways_servers(submission: Submission, pathways: Pathways) -> tuple[Manifest, Manifest]:
    """Return resource manager and proxy, which run next to the program as long as it runs."""
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
            _of_label("HOST_ADDRESS", "coordinator"),
            _of_label("JOBSET_NAME", "jobset-name"),
            _of_label("REPLICATED_JOB_NAME", "replicatedjob-name"),
            # A system node has no chips, so the metadata server cannot be asked for them.
            *_plain({"TPU_SKIP_MDS_QUERY": "true"}),
        ],
        "ports": [{"containerPort": port} for port in (MANAGER_PORT, 29002)],
        "restartPolicy": "Always",
    }
    proxy: Manifest = {
        "name": "proxy",
        "image": pathways.proxy_image,
        "args": [f"--server_port={PROXY_PORT}", _MANAGER, _scratch(submission)],
        "env": [_head()],
        "ports": [{"containerPort": PROXY_PORT}],
        "restartPolicy": "Always",
    }
    return manager, proxy


def _pathways_worker(submission: Submission, pathways: Pathways) -> Manifest:
    return {
        "name": WORKER,
        "image": pathways.server_image,
        "args": [f"--server_port={WORKER_PORT}", _MANAGER, _scratch(submission)],
        "env": [
            _head(),
            _of_label("JOBSET_NAME", "jobset-name"),
            _of_label("REPLICATED_JOB_NAME", "replicatedjob-name"),
            *_of_a_tpu_container(submission),
            *_plain({"MEGASCALE_GRPC_ENABLE_XOR_TRACER": "false", "XCLOUD_ENVIRONMENT": "GCP"}),
            *_plain({"TPU_MIN_LOG_LEVEL": "0", "TF_CPP_MIN_LOG_LEVEL": "0"}),
        ],
        "ports": [{"containerPort": port} for port in (WORKER_PORT, 29006, *_MESSAGE_PORTS)],
    }


def _scratch(submission: Submission) -> str:
    return f"--gcs_scratch_location={submission.folder}/pathways"


def _head() -> Manifest:
    return _of_label("PATHWAYS_HEAD", "coordinator")
