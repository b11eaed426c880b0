"""The pod templates of a job: what a pod is given and may do, and which nodes it may use."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from infra import programs
from infra.names import (
    ACCELERATOR_LABEL,
    EXCLUSIVE,
    HEAD,
    HOST_LABEL,
    JOB_KEY,
    JOBSET_LABEL,
    NODE_POOL_LABEL,
    REPLICATED_JOB_LABEL,
    SERVICE_ACCOUNT,
    SLICE_GROUP_LABEL,
    SLICES,
    SYSTEM_POOL,
    TOPOLOGY_LABEL,
    TPU_RESOURCE,
)
from infra.objects import Manifest
from infra.settings.jobs import ContainerJob, HostShare, Job, Pathways, PodLevel, ScratchVolume
from infra.settings.schema import DATASETS_FOLDER, Placement, SliceGroup
from infra.submission import Submission
from infra.tpu import SliceShape
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

    No level allows the host's network and nothing else. Where pods use it, a policy of `infra.borders`
    refuses the rest.
    """
    mode = "pod-security.kubernetes.io"
    return {f"{mode}/enforce": level, f"{mode}/warn": _WARNED_LEVEL, f"{mode}/audit": _WARNED_LEVEL}


def pod_template(submission: Submission) -> Manifest:
    """Metadata and spec of the pods that hold the chips."""
    kept = pod_annotations(submission.groups, submission.placement, submission.slices.hosts)
    runtime = programs.pathways_runtime(submission.job)
    if runtime is None:
        asked = submission.job.resources if isinstance(submission.job, ContainerJob) else _UNSAID
        own = {"resources": resources(submission.shape, asked=asked)}
        checks = [programs.slice_check(submission) | own] if submission.checking_image else []
        annotations = kept | _mount_annotations(submission)
        return _template(submission, annotations, _place(submission), [programs.program(submission) | own], checks)
    shared = programs.colocated(submission.shape)
    own = resources(submission.shape, _HALF_THE_SHARE if shared else _REQUESTED_SHARE)
    container = programs.pathways_worker(submission, runtime) | {"resources": own}
    return _template(submission, kept, _place(submission, colocated=shared), [container], with_data=False)


def head_template(submission: Submission, runtime: Pathways) -> Manifest:
    """Metadata and spec of the head: the program, and beside it the servers of Pathways."""
    shared = programs.colocated(submission.shape)
    shares = _head_resources(submission.shape if shared else None, runtime)
    manager, proxy = programs.pathways_servers(submission, runtime)
    return _template(
        submission,
        _mount_annotations(submission),
        head_place(submission.groups, submission.job.name, colocated=shared),
        [programs.program(submission) | {"resources": shares[2]}],
        [manager | {"resources": shares[0]}, proxy | {"resources": shares[1]}],
    )


def _place(submission: Submission, *, colocated: bool = False) -> Manifest:
    affinity = pod_affinity(submission.groups, submission.placement, colocated=colocated)
    return {
        "nodeSelector": node_selector(submission.groups),
        "tolerations": pod_tolerations(submission.groups),
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
        # All that a pod writes on its host: libtpu's logs (`infra.programs`) and lock, compiled programs, profiles,
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
    """A token that ends with the pod and knows its node: it may mark that node, see `infra.borders`."""
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


type Groups = Mapping[str, SliceGroup]
type Way = Placement | Literal["affinity", "request"]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_BROKEN_CONTACT = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Taints of a node that the control plane has no good word of."""


def way(groups: Iterable[SliceGroup], placement: Placement) -> Way:
    """What keeps a slice together wherever the job lands: the way that its most demanding group needs."""
    capacities = [group.capacity for group in groups]
    if any(capacity.requested_by_pods for capacity in capacities):
        return "affinity"
    if all(capacity.queued for capacity in capacities):
        return "request"
    return placement


def rewrites_node_selector(groups: Groups) -> bool:
    """Whether Kueue adds to the pods' node selector when it admits the job.

    It adds the labels of the flavor it chose, and of a queued request the nodes that came for it. The
    field is Kueue's from then on: server-side apply refuses to change anything else of the JobSet.
    """
    return len(groups) > 1 or any(group.capacity.queued for group in groups.values())


def request_annotations(groups: Groups) -> dict[str, str]:
    """Annotations of the JobSet that say what is asked of a queued group."""
    capacities = [group.capacity for group in groups.values()]
    run_seconds = [each.run_seconds for each in capacities if each.queued and each.run_seconds]
    return {"provreq.kueue.x-k8s.io/maxRunDurationSeconds": str(min(run_seconds))} if run_seconds else {}


def slice_annotations(groups: Groups, placement: Placement) -> dict[str, str]:
    """Annotations that keep each slice in one node pool: of the JobSet, or of its slices alone if it has a head."""
    return {EXCLUSIVE: NODE_POOL_LABEL} if way(groups.values(), placement) == "exclusive-topology" else {}


def head_annotations() -> dict[str, str]:
    """Annotations that keep two heads from one system node."""
    return {EXCLUSIVE: HOST_LABEL}


def head_place(groups: Groups, job: str, *, colocated: bool) -> Manifest:
    """Where the head of the job named `job` goes: fields of its pods' spec."""
    if not colocated:
        return {"nodeSelector": {NODE_POOL_LABEL: SYSTEM_POOL}, "tolerations": pod_tolerations({})}
    of_slice: Manifest = {"matchLabels": {JOBSET_LABEL: job, REPLICATED_JOB_LABEL: SLICES}}
    beside: Manifest = {"topologyKey": HOST_LABEL, "labelSelector": of_slice}
    return {
        "nodeSelector": node_selector(groups),
        "tolerations": pod_tolerations(groups),
        "affinity": {"podAffinity": {_REQUIRED: [beside]}},
    }


def pod_annotations(groups: Groups, placement: Placement, hosts: int) -> dict[str, str]:
    """Annotations of the pods that place them: a "podset slice" of Kueue is one slice of `hosts` pods.

    The plain `podset-required-topology` would force all slices of the job into one node pool.
    """
    if way(groups.values(), placement) != "topology-aware":
        return {}
    return {
        "kueue.x-k8s.io/podset-slice-required-topology": NODE_POOL_LABEL,
        "kueue.x-k8s.io/podset-slice-size": str(hosts),
    }


def node_selector(groups: Groups) -> dict[str, str]:
    """The labels that the nodes of all groups have."""
    first, *others = (node_labels(name, group) for name, group in groups.items())
    return {key: value for key, value in first.items() if all(other.get(key) == value for other in others)}


def pod_tolerations(groups: Groups) -> list[Manifest]:
    """What a pod needs to run on the nodes of any of the groups, and to stay on one that is out of touch.

    Kubernetes' own 300 seconds of patience would end a job that trains on while its node's word is lost
    (https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#taint-based-evictions). Whether
    hosts work is seen sooner by their peers and the watchdog. An eviction frees nothing meanwhile: a pod stays until
    its node is back or replaced, on GKE after about ten minutes
    (https://cloud.google.com/kubernetes-engine/docs/how-to/node-auto-repair).
    """
    wanted: list[Manifest] = []
    for group in groups.values():
        wanted += [toleration for toleration in tolerations(group) if toleration not in wanted]
    return [*wanted, *({"key": key, "operator": "Exists", "effect": "NoExecute"} for key in _BROKEN_CONTACT)]


def pod_affinity(groups: Groups, placement: Placement, *, colocated: bool = False) -> Manifest:
    """Affinity of the pods, empty if they need none; `colocated`: the job's head comes to their host."""
    rules: Manifest = {}
    if len(groups) > 1:
        one_of: Manifest = {"key": SLICE_GROUP_LABEL, "operator": "In", "values": list(groups)}
        # Kueue chooses a flavor by it, in the order of the ClusterQueue, and narrows it to that one.
        rules["nodeAffinity"] = {_REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [one_of]}]}}
    if way(groups.values(), placement) == "affinity":
        rules |= _one_pool_for_each_slice(colocated)
    return rules


def _one_pool_for_each_slice(colocated: bool) -> Manifest:
    """Exclusive topology for pools without nodes, told to the scheduler and the autoscaler alone.

    JobSet lets followers through its webhook once their leader runs, but an empty pool gets its
    nodes only if the pods of all hosts wait for them.
    """
    others: list[Manifest] = [{"key": JOBSET_LABEL, "operator": "Exists"}]
    if colocated:
        others.append({"key": REPLICATED_JOB_LABEL, "operator": "NotIn", "values": [HEAD]})
    term: Manifest = {"topologyKey": NODE_POOL_LABEL, "labelSelector": {"matchExpressions": others}}
    together = {**term, "matchLabelKeys": [JOB_KEY]}
    apart = {**term, "mismatchLabelKeys": [JOB_KEY], "namespaceSelector": {}}
    return {"podAffinity": {_REQUIRED: [together]}, "podAntiAffinity": {_REQUIRED: [apart]}}


def node_labels(name: str, group: SliceGroup) -> dict[str, str]:
    """Labels that the nodes of a slice group have, and no other nodes."""
    return {
        ACCELERATOR_LABEL: group.shape.accelerator,
        TOPOLOGY_LABEL: group.shape.topology,
        **declared_node_labels(name, group),
    }


def declared_node_labels(name: str, group: SliceGroup) -> dict[str, str]:
    """Those of the labels that GKE does not set by itself.

    A kind of capacity has one only where GKE asks for it: the group's name tells the kinds apart.
    """
    return {SLICE_GROUP_LABEL: name, **group.capacity.node_labels}


def tolerations(group: SliceGroup) -> list[Manifest]:
    """What a pod needs to run on the nodes of the group."""
    return [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in group.capacity.taints]
