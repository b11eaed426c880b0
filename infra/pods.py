"""The pod templates of a job: one pod for each host, and one for the head of a job that runs by Pathways.

Owns what a pod is given and may do, and its volumes. What runs in it is the business of `infra.programs`, where it
goes of `infra.placement`, what its end means of `infra.jobset`.

One process drives all chips of its host, on 7x all eight devices of both NUMA nodes. JAX allows a
process for each NUMA node there as well; the trainer needs no second one, and one process for
each host is one rule for all generations.
"""

from collections.abc import Mapping, Sequence

from infra import pathways, placement, programs
from infra.accelerators import SliceShape
from infra.names import SERVICE_ACCOUNT, TPU_RESOURCE, Manifest
from infra.settings.jobs import ContainerJob, HostShare, Job, Pathways, PodLevel, ScratchVolume
from infra.settings.schema import DATASETS_FOLDER
from infra.submission import Submission
from workloads.spec import API_ACCESS_PATH

_REQUESTED_SHARE = 0.75
"""Share of a machine's CPU and memory that its pod requests."""
_LARGEST_SHARE = 0.85
"""Largest share of a machine that fits what GKE leaves to pods, daemons of every node apart."""
_UNSAID = HostShare()
_HALF_THE_SHARE = _REQUESTED_SHARE / 2
"""The same of each of two pods that share a machine."""
_HOST_NETWORK: Manifest = {
    "hostNetwork": True,
    # Without it such pods ask the node's resolver, which does not know their peers.
    "dnsPolicy": "ClusterFirstWithHostNet",
}
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
_PRIVILEGED_CONTAINER: Manifest = {
    # The API server refuses allowPrivilegeEscalation: false next to it.
    "privileged": True,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
_WARNED_LEVEL: PodLevel = "restricted"
_API_ACCESS = "api-access"
TOKEN_SECONDS = 3600
"""Kubelet renews the token when it is four fifths old."""


def admitted_pods(level: PodLevel) -> dict[str, str]:
    """Return the labels of a namespace that takes only pods of this level, whoever makes them.

    No level allows the host's network and nothing else. Where pods use it, a policy of `infra.admission_policies`
    refuses the rest.
    """
    mode = "pod-security.kubernetes.io"
    return {f"{mode}/enforce": level, f"{mode}/warn": _WARNED_LEVEL, f"{mode}/audit": _WARNED_LEVEL}


def pod_template(submission: Submission) -> Manifest:
    """Metadata and spec of the pods that hold the chips."""
    kept = placement.pod_annotations(submission.groups, submission.placement, submission.slices.hosts)
    runtime = pathways.runtime(submission.job)
    if runtime is None:
        asked = submission.job.resources if isinstance(submission.job, ContainerJob) else _UNSAID
        own = {"resources": resources(submission.shape, asked=asked)}
        checks = [programs.slice_check(submission) | own] if submission.checking_image else []
        annotations = kept | _mount_annotations(submission)
        return _template(submission, annotations, _place(submission), [programs.program(submission) | own], checks)
    shared = pathways.colocated(submission.shape)
    own = resources(submission.shape, _HALF_THE_SHARE if shared else _REQUESTED_SHARE)
    container = pathways.worker(submission, runtime) | {"resources": own}
    return _template(submission, kept, _place(submission, colocated=shared), [container], with_data=False)


def head_template(submission: Submission, runtime: Pathways) -> Manifest:
    """Metadata and spec of the head: the program, and beside it the servers of Pathways."""
    shared = pathways.colocated(submission.shape)
    shares = _head_resources(submission.shape if shared else None, runtime)
    manager, proxy = pathways.servers(submission, runtime)
    return _template(
        submission,
        _mount_annotations(submission),
        placement.head_place(submission.groups, submission.job.name, colocated=shared),
        [programs.program(submission) | {"resources": shares[2]}],
        [manager | {"resources": shares[0]}, proxy | {"resources": shares[1]}],
    )


def _place(submission: Submission, *, colocated: bool = False) -> Manifest:
    affinity = placement.affinity(submission.groups, submission.placement, colocated=colocated)
    return {
        "nodeSelector": placement.node_selector(submission.groups),
        "tolerations": placement.tolerations(submission.groups),
        **({"affinity": affinity} if affinity else {}),
    }


def _mount_annotations(submission: Submission) -> dict[str, str]:
    return {"gke-gcsfuse/volumes": "true"} if submission.mounted_bucket else {}


def _template(
    submission: Submission,
    annotations: Mapping[str, str],
    place: Manifest,
    containers: Sequence[Manifest],
    before: Sequence[Manifest] = (),
    *,
    with_data: bool = True,
) -> Manifest:
    """Pods that run `containers`, once those `before` have ended or, if they are sidecars, have started, on nodes that
    `place` names; `with_data`: they see the mounted bucket."""
    bucket = submission.mounted_bucket if with_data else None
    own = _own_volumes(submission.job) if with_data else {}
    mounts = [*_mounts(submission, bucket), *({"name": name, "mountPath": own[name].path} for name in own)]
    confined = {"securityContext": _container_context(submission.job), "volumeMounts": mounts}
    spec: Manifest = {
        "restartPolicy": "Never",
        "serviceAccountName": SERVICE_ACCOUNT,
        # The metadata server gives Google credentials; of the API server the pod needs `_api_access` alone.
        "automountServiceAccountToken": False,
        "securityContext": _pod_context(submission.job),
        **(_HOST_NETWORK if submission.job.host_network else {}),
        "terminationGracePeriodSeconds": submission.job.grace_seconds,
        **place,
        **({"initContainers": [container | confined for container in before]} if before else {}),
        "containers": [container | confined for container in containers],
        "volumes": [*_volumes(submission, bucket), *(_empty_folder(name, own[name]) for name in own)],
    }
    return {**({"metadata": {"annotations": dict(annotations)}} if annotations else {}), "spec": spec}


def _pod_context(job: Job) -> Manifest:
    user = job.run_as_user if isinstance(job, ContainerJob) else None
    if user is None:
        return CONFINED_POD
    return CONFINED_POD | {"runAsNonRoot": user != 0, "runAsUser": user, "runAsGroup": user}


def _container_context(job: Job) -> Manifest:
    return _PRIVILEGED_CONTAINER if isinstance(job, ContainerJob) and job.privileged else CONFINED_CONTAINER


def _own_volumes(job: Job) -> Mapping[str, ScratchVolume]:
    """Volumes of the stack file, by the names that they have in the pod."""
    volumes = job.volumes if isinstance(job, ContainerJob) else {}
    return {f"own-{name}": volume for name, volume in volumes.items()}


def _empty_folder(name: str, volume: ScratchVolume) -> Manifest:
    medium = {"medium": "Memory"} if volume.medium == "memory" else {}
    return {"name": name, "emptyDir": {**medium, "sizeLimit": f"{volume.size_gib}Gi"}}


def _volumes(submission: Submission, bucket: str | None) -> list[Manifest]:
    volumes: list[Manifest] = [
        # The default of 64 MiB is too small for libtpu's transfers between host and chips.
        {"name": _SHARED_MEMORY, "emptyDir": {"medium": "Memory"}},
        # All that a pod writes on its host: libtpu's logs (`infra.variables`) and lock, compiled programs, profiles,
        # corpora.
        {"name": _TEMPORARY, "emptyDir": {}},
    ]
    if _marks_its_node(submission):
        volumes.append(_api_access())
    if bucket:
        # https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-ephemeral
        files: Manifest = {
            "driver": "gcsfuse.csi.storage.gke.io",
            "readOnly": True,
            "volumeAttributes": {"bucketName": bucket, "mountOptions": "implicit-dirs"},
        }
        volumes.append({"name": _DATASETS, "csi": files})
    return volumes


def _marks_its_node(submission: Submission) -> bool:
    """Whether the pod needs the API server: the trainer alone tells of bad hosts."""
    return submission.spec is not None


def _api_access() -> Manifest:
    """A token that ends with the pod and knows its node: it may mark that node, see `infra.quarantine`."""
    token = {"path": "token", "expirationSeconds": TOKEN_SECONDS}
    authority = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    sources: list[Manifest] = [{"serviceAccountToken": token}, {"configMap": authority}]
    return {"name": _API_ACCESS, "projected": {"sources": sources}}


def _mounts(submission: Submission, bucket: str | None) -> list[Manifest]:
    mounts: list[Manifest] = [
        {"name": _SHARED_MEMORY, "mountPath": "/dev/shm"},
        {"name": _TEMPORARY, "mountPath": "/tmp"},
    ]
    if _marks_its_node(submission):
        mounts.append({"name": _API_ACCESS, "mountPath": API_ACCESS_PATH, "readOnly": True})
    if bucket:
        mounts.append({"name": _DATASETS, "mountPath": DATASETS_FOLDER, "readOnly": True})
    return mounts


def resources(shape: SliceShape, share: float = _REQUESTED_SHARE, asked: HostShare = _UNSAID) -> Manifest:
    """What a pod takes of its host: all chips, and most of the rest unless the stack file says otherwise.

    So much that no second large pod fits beside the trainer, yet no more than remains when kubelet
    and daemons have their part. No limits: to throttle the only large pod of a host helps nobody, and
    a memory limit would kill it, /dev/shm and all, while memory is free. Kubelet bounds all pods alike.
    """
    chips = str(shape.chips_per_host)
    wanted = _requests(*requested_of_host(shape, asked, share))
    return {"requests": {**wanted, TPU_RESOURCE: chips}, "limits": {TPU_RESOURCE: chips}}


def requested_of_host(shape: SliceShape, asked: HostShare, share: float = _REQUESTED_SHARE) -> tuple[int, int]:
    """Return the vCPUs and GiB that a pod requests of its host."""
    vcpus, memory_gib = _part_of_host(shape, share)
    return asked.vcpus or vcpus, asked.memory_gib or memory_gib


def most_of_host(shape: SliceShape) -> tuple[int, int]:
    """Return the most vCPUs and GiB that a pod may request and still find a place next to GKE's own pods."""
    return _part_of_host(shape, _LARGEST_SHARE)


def _head_resources(shared: SliceShape | None, runtime: Pathways) -> tuple[Manifest, Manifest, Manifest]:
    """What resource manager, proxy and program take of a system node, or of the host that they share."""
    vcpus, memory_gib = runtime.head_vcpus, runtime.head_memory_gib
    if shared:
        vcpus, memory_gib = _part_of_host(shared, _HALF_THE_SHARE)
    manager, proxy = (vcpus // 6, memory_gib // 7), (vcpus // 3, 3 * memory_gib // 7)
    program = (vcpus - manager[0] - proxy[0], memory_gib - manager[1] - proxy[1])
    return {"requests": _requests(*manager)}, {"requests": _requests(*proxy)}, {"requests": _requests(*program)}


def _part_of_host(shape: SliceShape, share: float) -> tuple[int, int]:
    return int(share * shape.vcpus_per_host), int(share * shape.memory_gib_per_host)


def _requests(vcpus: int, memory_gib: int) -> Manifest:
    return {"cpu": str(vcpus), "memory": f"{memory_gib}Gi"}
