"""The containers of a job that one program drives by way of Pathways.

Owns what Google's servers are told. Where their pods go is the business of `infra.placement`, what the pods are given
of `infra.pods`, what their end means of `infra.jobset`.

As in the manifests of AI-Hypercomputer/pathways-utils (`pathwaysutils/experimental/gke/jobset.py`), of xpk
(`pathways_workload_create.yaml.j2`) and of google/pathways-job, which agree but for names, and
https://docs.cloud.google.com/ai-hypercomputer/docs/workloads/pathways-on-cloud/pathways-intro. They differ from those
in what the security of the cluster forbids: no folder of the host, no privileges, and the host's network on
request alone.
"""

from infra.accelerators import SliceShape
from infra.names import Manifest
from infra.settings.jobs import ContainerJob, Job, Pathways
from infra.submission import Submission
from infra.variables import label, of_a_tpu_container

PROXY_PORT, MANAGER_PORT, WORKER_PORT = 29000, 29001, 29005
PORTS = (PROXY_PORT, MANAGER_PORT, 29002, WORKER_PORT, 29006)
"""Those that the servers listen on; of the second of a pair no source says what for."""
VARIABLES = ("JAX_PLATFORMS", "JAX_BACKEND_TARGET", "XCLOUD_ENVIRONMENT", "PATHWAYS_HEAD")
"""Environment variables of the program by which JAX finds the proxy."""
WORKER = "worker"
"""Name of the workers' container."""

_INSTANCES = {
    "ct4p-hightpu-4t": "tpuv4",
    "ct5lp-hightpu-4t": "tpuv5e",
    "ct5lp-hightpu-8t": "tpuv5e1t",
    "ct5p-hightpu-4t": "tpuv5",
    "ct6e-standard-4t": "tpuv6e",
    "ct6e-standard-8t": "tpuv6e1t",
    "tpu7x-standard-4t": "tpu7x",
}
"""Pathways' own names of machine types; machines of one chip have none."""
_MESSAGE_PORTS = (8471, 8080)
"""Of the TPU runtime: between hosts of a slice, and between slices."""


def runtime(job: Job) -> Pathways | None:
    """What the job says of Pathways; None: it runs without."""
    return job.pathways if isinstance(job, ContainerJob) else None


def instance(shape: SliceShape) -> str | None:
    """The slice as Pathways names it, such as `tpuv6e:4x4`; None: it has no name for it."""
    machine = _INSTANCES.get(shape.machine_type)
    return machine and f"{machine}:{shape.topology}"


def machine_types() -> tuple[str, ...]:
    """Those that it has a name for."""
    return tuple(_INSTANCES)


def colocated(shape: SliceShape) -> bool:
    """Whether the head shares the host of the worker: on a slice that has but one."""
    return not shape.multi_host


def servers(submission: Submission, pathways: Pathways) -> tuple[Manifest, Manifest]:
    """Resource manager and proxy, which run beside the program as long as it runs."""
    manager: Manifest = {
        "name": "resource-manager",
        "image": pathways.server_image,
        "args": [
            f"--server_port={MANAGER_PORT}",
            "--node_type=resource_manager",
            f"--instance_count={submission.slices.count}",
            f"--instance_type={instance(submission.shape)}",
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


def worker(submission: Submission, pathways: Pathways) -> Manifest:
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


def variables() -> list[Manifest]:
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
