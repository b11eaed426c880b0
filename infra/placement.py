"""Where the pods of a job go: which nodes they may use, and what keeps a slice in one node pool.

Owns selectors, tolerations, affinity and the annotations that ask for placement. No slice may
straddle two node pools and no pool serve two slices; there are four ways to that, by where the
nodes come from and who counts them:

- standing nodes: JobSet's exclusive topology, or Kueue's topology-aware scheduling, never both,
  since followers would wait for a leader that Kueue still holds back;
- nodes that come for waiting pods (flex-start): affinity, told to the scheduler and the autoscaler;
- nodes that come by request (queued): nothing, for a request brings one slice by itself.

The head of a job that runs by Pathways has no chips. It goes to a system node, one to each, or, where the slice has
one host, to that host. Nothing else keeps such a slice together: its only pod has all its chips.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

from infra import flavors
from infra.capacity import FlexStart, Queued
from infra.flavors import flavor_labels
from infra.names import (
    EXCLUSIVE,
    HEAD,
    HOST_LABEL,
    JOB_KEY,
    JOBSET_LABEL,
    NODE_POOL_LABEL,
    REPLICATED_JOB_LABEL,
    SLICE_GROUP_LABEL,
    SLICES,
    SYSTEM_POOL,
    Manifest,
)
from infra.settings.schema import Placement, SliceGroup

type Groups = Mapping[str, SliceGroup]
type Way = Placement | Literal["affinity", "request"]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_BROKEN_CONTACT = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Taints of a node that the control plane has no good word of."""


def way(groups: Iterable[SliceGroup], placement: Placement) -> Way:
    """What keeps a slice together wherever the job lands: the way that its most demanding group needs."""
    capacities = [group.capacity for group in groups]
    if any(isinstance(capacity, FlexStart) for capacity in capacities):
        return "affinity"
    if all(isinstance(capacity, Queued) for capacity in capacities):
        return "request"
    return placement


def rewrites_node_selector(groups: Groups) -> bool:
    """Whether Kueue adds to the pods' node selector when it admits the job.

    It adds the labels of the flavor it chose, and of a queued request the nodes that came for it. The
    field is Kueue's from then on: server-side apply refuses to change anything else of the JobSet.
    """
    return len(groups) > 1 or any(isinstance(group.capacity, Queued) for group in groups.values())


def request_annotations(groups: Groups) -> dict[str, str]:
    """Annotations of the JobSet that say what is asked of a queued group."""
    run_seconds = [group.capacity.max_run_seconds for group in groups.values() if isinstance(group.capacity, Queued)]
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
        return {"nodeSelector": {NODE_POOL_LABEL: SYSTEM_POOL}, "tolerations": tolerations({})}
    of_slice: Manifest = {"matchLabels": {JOBSET_LABEL: job, REPLICATED_JOB_LABEL: SLICES}}
    beside: Manifest = {"topologyKey": HOST_LABEL, "labelSelector": of_slice}
    return {
        "nodeSelector": node_selector(groups),
        "tolerations": tolerations(groups),
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
    first, *others = (flavor_labels(name, group) for name, group in groups.items())
    return {key: value for key, value in first.items() if all(other.get(key) == value for other in others)}


def tolerations(groups: Groups) -> list[Manifest]:
    """What a pod needs to run on the nodes of any of the groups, and to stay on one that is out of touch.

    Kubernetes' own 300 seconds of patience would end a job that trains on while its node's word is lost
    (https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/#taint-based-evictions). Whether
    hosts work is seen sooner by their peers and the watchdog. An eviction frees nothing meanwhile: a pod stays until
    its node is back or replaced, on GKE after about ten minutes
    (https://cloud.google.com/kubernetes-engine/docs/how-to/node-auto-repair).
    """
    wanted: list[Manifest] = []
    for group in groups.values():
        wanted += [toleration for toleration in flavors.tolerations(group) if toleration not in wanted]
    return [*wanted, *({"key": key, "operator": "Exists", "effect": "NoExecute"} for key in _BROKEN_CONTACT)]


def affinity(groups: Groups, placement: Placement, *, colocated: bool = False) -> Manifest:
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
