"""The pod templates of a job: resources and permissions of a pod, and the nodes that it may use.

One process uses all chips of its host, on 7x all eight devices of both NUMA nodes. JAX also allows one process per NUMA
node there, but the trainer does not need that, and one process per host is one rule for all generations.

A slice must not be spread over two node pools, and a pool must not serve two slices. The mechanism that ensures this
depends on the capacity and on the stack's placement:

- standing nodes: JobSet's exclusive topology, or Kueue's topology-aware scheduling. Never both, because followers would
  wait for a leader that Kueue still holds back.
- nodes that are created for waiting pods (flex-start): affinity, which scheduler and autoscaler both read.
- nodes that are created by request (queued): nothing, because a request provides exactly one slice.

The head of a Pathways job has no chips. It runs on a system node, or on the host of the slice if there is only one.
Such a slice needs no other mechanism: its only pod has all its chips.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from infra.stack.manifests import Manifest
from infra.stack.names import (
    ACCELERATOR_LABEL,
    EXCLUSIVE,
    HEAD,
    HOST_LABEL,
    JOB_KEY,
    JOBSET_LABEL,
    LOCAL_CHECKPOINTS_FOLDER,
    NODE_POOL_LABEL,
    REPLICATED_JOB_LABEL,
    SLICE_GROUP_LABEL,
    SLICES,
    SYSTEM_POOL,
    TOPOLOGY_LABEL,
    TPU_RESOURCE,
)
from infra.stack.programs import Containers, containers
from infra.stack.settings.jobs import HostShare, Pathways, PodLevel, ScratchVolume
from infra.stack.settings.schema import DATASETS_FOLDER, Placement, SliceGroup
from infra.stack.submission import Submission
from infra.stack.tpu import SliceShape
from workloads.spec import API_ACCESS_PATH

type Groups = Mapping[str, SliceGroup]
type SliceBinding = Placement | Literal["affinity", "request"]

TOKEN_SECONDS = 3600
"""Lifetime of a pod's token in seconds. The kubelet renews it after four fifths of that time."""
CONFINED_POD: Manifest = {
    "runAsNonRoot": True,
    # The user of the image (`workloads/Dockerfile`). It must also be set here: only then do kubelet and the runtime
    # give it access to files and devices (https://kubernetes.io/blog/2021/11/09/non-root-containers-and-devices/).
    "runAsUser": 10001,
    "runAsGroup": 10001,
    # GKE Autopilot runs TPU pods with it, and accepts no privileged ones
    # (https://cloud.google.com/kubernetes-engine/docs/concepts/seccomp-in-gke).
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""Security context of pods that are admitted at the level `restricted`."""
CONFINED_CONTAINER: Manifest = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
"""Security context of their containers. Since GKE 1.28 no generation needs a privileged one
(https://cloud.google.com/kubernetes-engine/docs/how-to/tpus)."""

_REQUESTED_SHARE = 0.75
"""Share of a machine's CPU and memory that its pod requests."""
_SHARED_HOST_SHARE = _REQUESTED_SHARE / 2
"""The same share for each of two pods on one machine."""
_MAX_SHARE = 0.85
"""Largest share of a machine that fits into what GKE leaves to pods, not counting the daemons of every node."""
_HOST_NETWORK: Manifest = {
    "hostNetwork": True,
    # Otherwise such pods use the node's resolver, which does not know their peers.
    "dnsPolicy": "ClusterFirstWithHostNet",
}
_PRIVILEGED_CONTAINER: Manifest = {
    # The API server refuses allowPrivilegeEscalation: false together with it.
    "privileged": True,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
_DATASETS, _SHARED_MEMORY, _TEMPORARY, _API_ACCESS = "datasets", "shared-memory", "temporary", "api-access"
_LOCAL_CHECKPOINTS = "local-checkpoints"
_WARNED_LEVEL: PodLevel = "restricted"
_DEFAULT_SHARE = HostShare()
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_BROKEN_CONTACT = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Taints of nodes that are not ready or cannot be reached."""


def admitted_pods(level: PodLevel) -> dict[str, str]:
    """Return the labels of a namespace that admits only pods of this level.

    No level allows only the host's network. Where pods use it, a policy of `infra.stack.admission_policies` refuses
    everything else that the level would allow."""
    mode = "pod-security.kubernetes.io"
    return {f"{mode}/enforce": level, f"{mode}/warn": _WARNED_LEVEL, f"{mode}/audit": _WARNED_LEVEL}


@dataclass(frozen=True)
class Pods:
    """What a JobSet needs to know of its pods."""

    slices: Manifest
    """Metadata and spec of the pods with the chips."""
    head: Manifest | None
    """Those of the head of a Pathways job: the program, with Pathways' servers as sidecars."""
    together: Mapping[str, str]
    """Annotations that keep each slice in one node pool. They are for the JobSet, or for its slices if it has a
    head."""
    requests: Mapping[str, str]
    """Annotations of the JobSet with the run time to request for a queued group."""


def render_pods(submission: Submission) -> Pods:
    """Return the pods of a job."""
    on_slices, on_head = containers(submission)
    runtime = submission.job.pathways
    return Pods(
        slices=_slice_template(submission, on_slices),
        head=_head_template(submission, runtime, on_head) if runtime and on_head else None,
        together=_slice_annotations(submission.groups, submission.fleet.scheduling.placement),
        requests=_request_annotations(submission.groups),
    )


def _slice_template(submission: Submission, on_slices: Containers) -> Manifest:
    annotations = _pod_annotations(submission.groups, submission.fleet.scheduling.placement, submission.slices.hosts)
    portion = _SHARED_HOST_SHARE if submission.shares_host else _REQUESTED_SHARE
    own = {"resources": resources(submission.shape, submission.job.resources, portion)}
    main, before = on_slices.main | own, [each | own for each in on_slices.before]
    with_data = submission.job.pathways is None
    mounted = _mount_annotations(submission) if with_data else {}
    return _template(submission, annotations | mounted, _place(submission), main, before, with_data=with_data)


def _head_template(submission: Submission, runtime: Pathways, on_head: Containers) -> Manifest:
    of_program, *of_servers = _head_resources(submission, runtime)
    return _template(
        submission,
        _mount_annotations(submission),
        head_place(submission.groups, submission.job.name, colocated=submission.shares_host),
        on_head.main | {"resources": of_program},
        [server | {"resources": own} for server, own in zip(on_head.before, of_servers, strict=True)],
    )


def _template(
    submission: Submission,
    annotations: Mapping[str, str],
    place: Manifest,
    main: Manifest,
    before: Sequence[Manifest] = (),
    *,
    with_data: bool = True,
) -> Manifest:
    """Return pods that run the container `main` on nodes that `place` selects, after the containers `before` have
    ended, or have started if they are sidecars. With `with_data` the bucket is mounted."""
    job, bucket = submission.job, submission.fleet.mounted_bucket if with_data else None
    own = _own_folders(submission) if with_data else {}
    mounts = [*_mounts(submission, bucket), *({"name": name, "mountPath": own[name].path} for name in own)]
    context = _PRIVILEGED_CONTAINER if job.privileged else CONFINED_CONTAINER
    confined = {"securityContext": context, "volumeMounts": mounts}
    spec: Manifest = {
        "restartPolicy": "Never",
        "serviceAccountName": submission.service_account,
        # The metadata server provides Google credentials. For the API server `_api_access` is enough.
        "automountServiceAccountToken": False,
        "securityContext": _pod_context(submission),
        **(_HOST_NETWORK if job.host_network else {}),
        "terminationGracePeriodSeconds": job.grace_seconds,
        **place,
        **({"initContainers": [container | confined for container in before]} if before else {}),
        "containers": [main | confined],
        "volumes": [*_volumes(submission, bucket), *(_empty_folder(name, own[name]) for name in own)],
    }
    return {**({"metadata": {"annotations": dict(annotations)}} if annotations else {}), "spec": spec}


def _mount_annotations(submission: Submission) -> dict[str, str]:
    return {"gke-gcsfuse/volumes": "true"} if submission.fleet.mounted_bucket else {}


def _pod_context(submission: Submission) -> Manifest:
    user = submission.job.run_as_user
    context = CONFINED_POD
    if user is not None:
        context = context | {"runAsNonRoot": user != 0, "runAsUser": user, "runAsGroup": user}
    return context


def _own_folders(submission: Submission) -> Mapping[str, ScratchVolume]:
    if submission.spec and (gib := submission.spec.local_states_gib):
        return {_LOCAL_CHECKPOINTS: ScratchVolume(path=LOCAL_CHECKPOINTS_FOLDER, size_gib=gib, medium="memory")}
    # Prefixed, so that no volume of the stack file has the name of a built-in one.
    return {f"own-{name}": each for name, each in submission.job.volumes.items()}


def _empty_folder(name: str, volume: ScratchVolume) -> Manifest:
    medium = {"medium": "Memory"} if volume.medium == "memory" else {}
    return {"name": name, "emptyDir": {**medium, "sizeLimit": f"{volume.size_gib}Gi"}}


def _volumes(submission: Submission, bucket: str | None) -> list[Manifest]:
    volumes: list[Manifest] = [
        # The default of 64 MiB is too small for libtpu's transfers between host and chips.
        {"name": _SHARED_MEMORY, "emptyDir": {"medium": "Memory"}},
        # Everything that a pod writes on its host: libtpu's logs and lock, compiled programs, profiles, corpora.
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


def _marks_its_node(submission: Submission) -> bool:
    """Return whether the pod needs the API server. Only the trainer does, to mark bad hosts."""
    return submission.spec is not None


def _api_access() -> Manifest:
    """Return a token that expires with the pod and is bound to its node, so that the pod may mark that node."""
    token = {"path": "token", "expirationSeconds": TOKEN_SECONDS}
    authority = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    sources: list[Manifest] = [{"serviceAccountToken": token}, {"configMap": authority}]
    return {"name": _API_ACCESS, "projected": {"sources": sources}}


def resources(shape: SliceShape, share: HostShare = _DEFAULT_SHARE, portion: float = _REQUESTED_SHARE) -> Manifest:
    """Return what a pod requests of its host: all chips, and `portion` of the rest unless the stack file has a `share`.

    The default is large enough that no second large pod fits next to the trainer, and small enough to leave room for
    kubelet and daemons. There are no limits: throttling the only large pod of a host does not help, and a memory limit
    would kill it, including /dev/shm, while memory is free. The kubelet limits all pods together.
    """
    chips = str(shape.chips_per_host)
    requests = _requests(*requested_of_host(shape, share, portion))
    return {"requests": {**requests, TPU_RESOURCE: chips}, "limits": {TPU_RESOURCE: chips}}


def requested_of_host(shape: SliceShape, share: HostShare, portion: float = _REQUESTED_SHARE) -> tuple[int, int]:
    """Return the vCPUs and GiB that a pod requests of its host."""
    vcpus, memory_gib = _part_of_host(shape, portion)
    return share.vcpus or vcpus, share.memory_gib or memory_gib


def most_of_host(shape: SliceShape) -> tuple[int, int]:
    """Return the most vCPUs and GiB that a pod may request and still fit next to GKE's own pods."""
    return _part_of_host(shape, _MAX_SHARE)


def _head_resources(submission: Submission, runtime: Pathways) -> tuple[Manifest, Manifest, Manifest]:
    """Return the requests of program, resource manager and proxy on a system node, or on the host that they share."""
    vcpus, memory_gib = runtime.head_vcpus, runtime.head_memory_gib
    if submission.shares_host:
        vcpus, memory_gib = _part_of_host(submission.shape, _SHARED_HOST_SHARE)
    manager, proxy = (vcpus // 6, memory_gib // 7), (vcpus // 3, 3 * memory_gib // 7)
    program = (vcpus - manager[0] - proxy[0], memory_gib - manager[1] - proxy[1])
    return {"requests": _requests(*program)}, {"requests": _requests(*manager)}, {"requests": _requests(*proxy)}


def _part_of_host(shape: SliceShape, portion: float) -> tuple[int, int]:
    return int(portion * shape.vcpus_per_host), int(portion * shape.memory_gib_per_host)


def _requests(vcpus: int, memory_gib: int) -> Manifest:
    return {"cpu": str(vcpus), "memory": f"{memory_gib}Gi"}


def node_labels(name: str, group: SliceGroup) -> dict[str, str]:
    """Return the labels that the nodes of a slice group have and no other nodes have."""
    return {
        ACCELERATOR_LABEL: group.shape.accelerator,
        TOPOLOGY_LABEL: group.shape.topology,
        **declared_node_labels(name, group),
    }


def declared_node_labels(name: str, group: SliceGroup) -> dict[str, str]:
    """Return the subset of these labels that GKE does not set."""
    return {SLICE_GROUP_LABEL: name, **group.capacity.node_labels}


def slice_binding(groups: Iterable[SliceGroup], placement: Placement) -> SliceBinding:
    """Return the mechanism that keeps a slice together. The most demanding of the job's groups decides."""
    capacities = [group.capacity for group in groups]
    if any(capacity.requested_by_pods for capacity in capacities):
        return "affinity"
    return "request" if all(capacity.queued for capacity in capacities) else placement


def _request_annotations(groups: Groups) -> dict[str, str]:
    capacities = [group.capacity for group in groups.values()]
    run_seconds = [each.run_seconds for each in capacities if each.queued and each.run_seconds]
    return {"provreq.kueue.x-k8s.io/maxRunDurationSeconds": str(min(run_seconds))} if run_seconds else {}


def _slice_annotations(groups: Groups, placement: Placement) -> dict[str, str]:
    return {EXCLUSIVE: NODE_POOL_LABEL} if slice_binding(groups.values(), placement) == "exclusive-topology" else {}


def _pod_annotations(groups: Groups, placement: Placement, hosts: int) -> dict[str, str]:
    """Return annotations by which Kueue places pods: its "podset slice" is one slice of `hosts` pods.

    The simpler `podset-required-topology` would force all slices of the job into one node pool.
    """
    if slice_binding(groups.values(), placement) != "topology-aware":
        return {}
    return {
        "kueue.x-k8s.io/podset-slice-required-topology": NODE_POOL_LABEL,
        "kueue.x-k8s.io/podset-slice-size": str(hosts),
    }


def _place(submission: Submission) -> Manifest:
    colocated = submission.job.pathways is not None and submission.shares_host
    affinity = pod_affinity(submission.groups, submission.fleet.scheduling.placement, colocated=colocated)
    return {
        "nodeSelector": node_selector(submission.groups),
        "tolerations": tolerations(submission.groups),
        **({"affinity": affinity} if affinity else {}),
    }


def head_place(groups: Groups, job: str, *, colocated: bool) -> Manifest:
    """Return where the head of the job named `job` runs, as fields of its pods' spec."""
    if not colocated:
        return {"nodeSelector": {NODE_POOL_LABEL: SYSTEM_POOL}, "tolerations": tolerations({})}
    slices: Manifest = {"matchLabels": {JOBSET_LABEL: job, REPLICATED_JOB_LABEL: SLICES}}
    same_host: Manifest = {"topologyKey": HOST_LABEL, "labelSelector": slices}
    return {
        "nodeSelector": node_selector(groups),
        "tolerations": tolerations(groups),
        "affinity": {"podAffinity": {_REQUIRED: [same_host]}},
    }


def node_selector(groups: Groups) -> dict[str, str]:
    """Return the labels that the nodes of all groups have."""
    first, *others = (node_labels(name, group) for name, group in groups.items())
    return {key: value for key, value in first.items() if all(other.get(key) == value for other in others)}


def tolerations(groups: Groups) -> list[Manifest]:
    """Return the tolerations with which a pod can run on the nodes of any of the groups and stay on an unreachable one.

    After its default of 300 seconds Kubernetes would end a job that still trains while contact with its node is lost
    (https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#taint-based-evictions). The peers of
    a host and the watchdog notice earlier if it stops working. An eviction also frees nothing: a pod stays until its
    node is back or replaced, on GKE after about ten minutes
    (https://cloud.google.com/kubernetes-engine/docs/how-to/node-auto-repair)."""
    taints = dict.fromkeys(key for group in groups.values() for key in group.capacity.taints)
    effects = {**dict.fromkeys(taints, "NoSchedule"), **dict.fromkeys(_BROKEN_CONTACT, "NoExecute")}
    return [{"key": key, "operator": "Exists", "effect": effect} for key, effect in effects.items()]


def pod_affinity(groups: Groups, placement: Placement, *, colocated: bool = False) -> Manifest:
    """Return the affinity of the pods; empty if they need none. `colocated`: the job's head runs on their host."""
    rules: Manifest = {}
    if len(groups) > 1:
        one_of: Manifest = {"key": SLICE_GROUP_LABEL, "operator": "In", "values": list(groups)}
        # Kueue chooses a flavor by it, in the order of the ClusterQueue, and narrows it to that flavor.
        rules["nodeAffinity"] = {_REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [one_of]}]}}
    if slice_binding(groups.values(), placement) == "affinity":
        rules |= _one_pool_per_slice(colocated)
    return rules


def _one_pool_per_slice(colocated: bool) -> Manifest:
    """Return the equivalent of exclusive topology for empty node pools, in terms of scheduler and autoscaler.

    JobSet's webhook admits followers only once their leader runs, but an empty pool gets its nodes only if the pods of
    all hosts wait for them.
    """
    others: list[Manifest] = [{"key": JOBSET_LABEL, "operator": "Exists"}]
    if colocated:
        others.append({"key": REPLICATED_JOB_LABEL, "operator": "NotIn", "values": [HEAD]})
    term: Manifest = {"topologyKey": NODE_POOL_LABEL, "labelSelector": {"matchExpressions": others}}
    together = {**term, "matchLabelKeys": [JOB_KEY]}
    apart = {**term, "mismatchLabelKeys": [JOB_KEY], "namespaceSelector": {}}
    return {"podAffinity": {_REQUIRED: [together]}, "podAntiAffinity": {_REQUIRED: [apart]}}
