"""The pod template of a job: one pod for each host.

Owns the container, what it is told and given, and its volumes. Where pods go is the business of
`infra.placement`, what their end means of `infra.jobset`.

One process drives all chips of its host, on 7x all eight devices of both NUMA nodes. JAX allows a
process for each NUMA node there as well; the trainer needs no second one, and one process for
each host is one rule for all generations.
"""

from infra import placement
from infra.accelerators import TPU_RESOURCE, SliceShape
from infra.placement import Manifest
from infra.stack_file import Job
from infra.submission import Submission
from workloads.spec import (
    API_ACCESS_PATH,
    CALL_SPEC_VARIABLE,
    IMAGE_VARIABLE,
    JOB_SPEC_VARIABLE,
    NODE_VARIABLE,
    PRICE_VARIABLE,
    RUN_ID_VARIABLE,
    START_VARIABLE,
)

SERVICE_ACCOUNT = "trainer"
"""Kubernetes service account of the pods, one in each team's namespace."""
CONTAINER = "trainer"
PRICE_KEY = "usd_per_hour"
"""Of the ConfigMap with the job's price."""

_TPU_METRICS_PORT = 8431
"""Where libtpu answers GKE's metrics agent (https://cloud.google.com/kubernetes-engine/docs/how-to/tpus)."""
_COORDINATOR_PORT = 8482
"""JAX's coordination service on Cloud TPU (jax/_src/clusters/cloud_tpu_cluster.py)."""
_REQUESTED_SHARE = 0.75
"""Share of a machine's CPU and memory that its pod requests."""
_HOST_NETWORK: Manifest = {
    "hostNetwork": True,
    # Without it such pods ask the node's resolver, which does not know their peers.
    "dnsPolicy": "ClusterFirstWithHostNet",
}
_COMPILE_CACHE = "JAX_COMPILATION_CACHE_DIR"
"""Read by JAX (https://docs.jax.dev/en/latest/persistent_compilation_cache.html)."""
_PLATFORMS: Manifest = {"name": "JAX_PLATFORMS", "value": "tpu,cpu"}
"""What is named must be there: without libtpu or chips JAX says so rather than train on the host's CPU. JAX's own
choice on a host with both (jax/_src/cloud_tpu_init.py)."""
TAKEN_VARIABLES = frozenset(
    (
        *(JOB_SPEC_VARIABLE, CALL_SPEC_VARIABLE, IMAGE_VARIABLE, PRICE_VARIABLE),
        *(RUN_ID_VARIABLE, START_VARIABLE, NODE_VARIABLE),
        _COMPILE_CACHE,
        *("HOST_BOUNDS", "CHIPS_PER_HOST_BOUNDS"),
        *("PATH", "HOME", "HOSTNAME", "TMPDIR"),
    )
)
"""Variables of a pod that are this module's, the TPU device plugin's, or the container's own."""
TAKEN_PREFIXES = ("TPU_", "MEGASCALE_", "JOB_", "KUBERNETES_", "JAX_", "XLA_", "LIBTPU_", "LD_", "PYTHON")
"""Of variables that GKE's webhook and device plugin, the Job controller and kubelet set, or that the
trainer's programs read as they start."""

_DATASETS = "datasets"
_SHARED_MEMORY = "shared-memory"
_TEMPORARY = "temporary"

_USER = 10001
"""Of the image: `workloads/Dockerfile`."""
CONFINED_POD: Manifest = {
    "runAsNonRoot": True,
    # Named here as well as in the image: kubelet and the runtime give files and devices to this user alone
    # where the pod says it (https://kubernetes.io/blog/2021/11/09/non-root-containers-and-devices/).
    "runAsUser": _USER,
    "runAsGroup": _USER,
    # GKE Autopilot runs TPU pods under it, and takes no privileged ones
    # (https://cloud.google.com/kubernetes-engine/docs/concepts/seccomp-in-gke).
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""Security context of pods that are admitted at the level `restricted`."""
CONFINED_CONTAINER: Manifest = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
"""Security context of their containers. No generation needs a privileged one since GKE 1.28
(https://cloud.google.com/kubernetes-engine/docs/how-to/tpus)."""
_LEVEL = "restricted"
_API_ACCESS = "api-access"
TOKEN_SECONDS = 3600
"""Kubelet renews the token when it is four fifths old."""


def admitted_pods(*, host_network: bool) -> dict[str, str]:
    """Labels of a namespace that takes no pods but those without rights, whoever makes them.

    Kubernetes counts the host's network among power over it and has no level for it alone
    (https://kubernetes.io/docs/concepts/security/pod-security-standards/): where pods use it, a policy of
    `infra.admission_policies` refuses the rest in place of the level.
    """
    mode = "pod-security.kubernetes.io"
    level = "privileged" if host_network else _LEVEL
    return {f"{mode}/enforce": level, f"{mode}/warn": _LEVEL, f"{mode}/audit": _LEVEL}


def pod_template(submission: Submission) -> Manifest:
    """Metadata and spec of the pods."""
    annotations = {
        **placement.pod_annotations(submission.groups, submission.placement, submission.slices.hosts),
        **({"gke-gcsfuse/volumes": "true"} if submission.mounted_bucket else {}),
    }
    return {**({"metadata": {"annotations": annotations}} if annotations else {}), "spec": _pod(submission)}


def secret_name(job: Job) -> str:
    """The Kubernetes Secret with the job's secrets, in its namespace."""
    return f"{job.name}-secrets"


def price_name(job: Job) -> str:
    """The ConfigMap with the job's price, in its namespace."""
    return f"{job.name}-price"


def _pod(submission: Submission) -> Manifest:
    affinity = placement.affinity(submission.groups, submission.placement)
    return {
        "restartPolicy": "Never",
        "serviceAccountName": SERVICE_ACCOUNT,
        # The metadata server gives Google credentials; of the API server the pod needs `_api_access` alone.
        "automountServiceAccountToken": False,
        "securityContext": CONFINED_POD,
        **(_HOST_NETWORK if submission.job.host_network else {}),
        "terminationGracePeriodSeconds": submission.job.grace_seconds,
        "nodeSelector": placement.node_selector(submission.groups),
        "tolerations": placement.tolerations(submission.groups),
        **({"affinity": affinity} if affinity else {}),
        "containers": [_container(submission)],
        "volumes": _volumes(submission.mounted_bucket),
    }


def _volumes(mounted_bucket: str | None) -> list[Manifest]:
    # The default of 64 MiB is too small for libtpu's transfers between host and chips.
    shared_memory: Manifest = {"name": _SHARED_MEMORY, "emptyDir": {"medium": "Memory"}}
    # All that a pod writes on its host: libtpu's logs and lock, compiled programs, profiles, corpora.
    own: list[Manifest] = [shared_memory, {"name": _TEMPORARY, "emptyDir": {}}]
    if mounted_bucket is None:
        return [*own, _api_access()]
    # https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-ephemeral
    bucket: Manifest = {
        "driver": "gcsfuse.csi.storage.gke.io",
        "readOnly": True,
        "volumeAttributes": {"bucketName": mounted_bucket, "mountOptions": "implicit-dirs"},
    }
    return [*own, _api_access(), {"name": _DATASETS, "csi": bucket}]


def _api_access() -> Manifest:
    """A token that ends with the pod and knows its node: it may mark that node, see `infra.quarantine`."""
    token = {"path": "token", "expirationSeconds": TOKEN_SECONDS}
    authority = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    sources: list[Manifest] = [{"serviceAccountToken": token}, {"configMap": authority}]
    return {"name": _API_ACCESS, "projected": {"sources": sources}}


def _container(submission: Submission) -> Manifest:
    mounts: list[Manifest] = [
        {"name": _SHARED_MEMORY, "mountPath": "/dev/shm"},
        {"name": _TEMPORARY, "mountPath": "/tmp"},
        {"name": _API_ACCESS, "mountPath": API_ACCESS_PATH, "readOnly": True},
    ]
    if submission.mounted_bucket:
        mounts.append({"name": _DATASETS, "mountPath": "/datasets", "readOnly": True})
    return {
        "name": CONTAINER,
        "image": submission.image,
        "command": ["python", "-m", submission.program.module],
        "env": [
            *({"name": name, "value": value} for name, value in submission.program.variables.items()),
            {"name": IMAGE_VARIABLE, "value": submission.image},
            _label_variable(RUN_ID_VARIABLE, "jobset.sigs.k8s.io/jobset-uid"),
            _label_variable(START_VARIABLE, "jobset.sigs.k8s.io/restart-attempt"),
            _price_variable(submission.job),
            {"name": NODE_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            _PLATFORMS,
            *([{"name": _COMPILE_CACHE, "value": cache}] if (cache := submission.compile_cache) else ()),
            *(_secret_variable(name, submission.job) for name in submission.secrets),
        ],
        "ports": [
            {"name": "tpu-metrics", "containerPort": _TPU_METRICS_PORT},
            {"name": "coordinator", "containerPort": _COORDINATOR_PORT},
        ],
        "resources": resources(submission.shape),
        "securityContext": CONFINED_CONTAINER,
        "volumeMounts": mounts,
    }


def resources(shape: SliceShape) -> Manifest:
    """What a pod takes of its host: all chips, and most of the rest.

    So much that no second large pod fits beside the trainer, yet no more than remains when kubelet
    and daemons have their part. No limits: to throttle the only large pod of a host helps nobody, and
    a memory limit would kill it, /dev/shm and all, while memory is free. Kubelet bounds all pods alike.
    """
    chips = str(shape.chips_per_host)
    cpu = str(int(_REQUESTED_SHARE * shape.vcpus_per_host))
    memory = f"{int(_REQUESTED_SHARE * shape.memory_gib_per_host)}Gi"
    return {"requests": {"cpu": cpu, "memory": memory, TPU_RESOURCE: chips}, "limits": {TPU_RESOURCE: chips}}


def _label_variable(name: str, label: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}}


def _price_variable(job: Job) -> Manifest:
    # By reference, since a price in the pod template would be a change that replaces the running job.
    reference = {"name": price_name(job), "key": PRICE_KEY, "optional": True}
    return {"name": PRICE_VARIABLE, "valueFrom": {"configMapKeyRef": reference}}


def _secret_variable(name: str, job: Job) -> Manifest:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret_name(job), "key": name}}}
