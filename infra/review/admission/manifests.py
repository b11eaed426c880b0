"""Queues and workloads read from Kubernetes objects: those that the stack renders, or those of a live cluster.

A live cluster may have either version of Kueue's API. Only chips are simulated.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from infra.review.admission.situation import Admission, FlavorQuota, PodSet, Queue, Situation, Workload
from infra.stack.manifests import (
    Object,
    amount,
    cohort_of,
    condition,
    holds,
    is_stopped,
    is_true,
    moment,
    queued_at,
    requests,
)
from infra.stack.names import GATES, TPU_RESOURCE


def queue(manifest: Object) -> Queue:
    """Return a ClusterQueue."""
    spec = manifest["spec"]
    (group,) = spec["resourceGroups"]
    preemption, fungibility = spec["preemption"], spec["flavorFungibility"]
    return Queue(
        name=manifest["metadata"]["name"],
        cohort=spec.get("cohortName"),
        flavors=tuple(_quota(flavor) for flavor in group["flavors"]),
        checked_flavors=frozenset(flavor for flavors in checks(manifest).values() for flavor in flavors),
        within_queue=preemption["withinClusterQueue"],
        reclaim=preemption["reclaimWithinCohort"],
        while_borrowing=preemption.get("borrowWithinCohort", {}).get("policy", "Never"),
        when_can_borrow=fungibility["whenCanBorrow"],
        when_can_preempt=fungibility["whenCanPreempt"],
        weight=amount(spec.get("fairSharing", {}).get("weight", 1)),
        stop_policy=spec.get("stopPolicy", "None"),
    )


def _quota(flavor: Object) -> FlavorQuota:
    (resource,) = flavor["resources"]
    chips = {key: int(amount(quantity)) for key, quantity in resource.items() if key != "name"}
    return FlavorQuota(
        flavor=flavor["name"],
        nominal=chips["nominalQuota"],
        borrowing_limit=chips.get("borrowingLimit"),
        lending_limit=chips.get("lendingLimit"),
    )


def workloads(
    found: Iterable[Object], cluster_queues: Mapping[tuple[str, str], str], flavors: Iterable[Object]
) -> list[Workload]:
    """Return the Workloads that run or wait in a queue of `cluster_queues`, by LocalQueue as in `cluster_queue`."""
    known, flavors = set(cluster_queues.values()), list(flavors)
    # Workloads of other queues may have any form, for example no chips.
    return [
        _workload(manifest, queue, flavors)
        for manifest in found
        if (queue := cluster_queue(manifest, cluster_queues)) in known and counts(manifest)
    ]


def cluster_queue(manifest: Object, cluster_queues: Mapping[tuple[str, str], str]) -> str | None:
    """Return the ClusterQueue of a Workload, where it has quota or else waits; `None` if there is none.

    `cluster_queues` names the ClusterQueue of each LocalQueue, by namespace and name.
    """
    if admitted := _admission(manifest):
        return admitted["clusterQueue"]
    return cluster_queues.get((manifest["metadata"]["namespace"], manifest["spec"].get("queueName", "")))


def _admission(manifest: Object) -> Object | None:
    return manifest["status"].get("admission") if is_true(manifest, "QuotaReserved") else None


def counts(manifest: Object) -> bool:
    """Return whether the workload has quota or requests some."""
    requests_some = manifest["spec"].get("active", True) and not manifest["metadata"].get("annotations", {}).get(GATES)
    return (requests_some or is_true(manifest, "QuotaReserved")) and not is_true(manifest, "Finished")


def _workload(manifest: Object, queue: str, flavors: list[Object]) -> Workload:
    metadata, spec, status = manifest["metadata"], manifest["spec"], manifest.get("status", {})
    evicted, admitted = is_true(manifest, "Evicted"), _admission(manifest)
    ended = {found["name"]: found["count"] for found in status.get("reclaimablePods", [])}
    return Workload(
        name=name_of(manifest),
        uid=metadata["uid"],
        queue=queue,
        priority=spec.get("priority", 0),
        queued_at=queued_at(manifest),
        pod_sets=tuple(_pod_set(pods, ended.get(pods["name"], 0), flavors) for pods in spec["podSets"] if _chips(pods)),
        admission=Admission(
            flavors=tuple(
                found.get("flavors", {}).get(TPU_RESOURCE, "")
                for pods, found in zip(spec["podSets"], admitted["podSetAssignments"], strict=True)
                if _chips(pods)
            ),
            reserved_at=moment(condition(manifest, "QuotaReserved"), "lastTransitionTime", 0.0),
            evicted=evicted,
        )
        if admitted
        else None,
    )


def jobset_workload(manifest: Object, queue: str, priority: int, flavors: Iterable[Object], now: float) -> Workload:
    """Return the workload that Kueue makes of a JobSet that is submitted now."""
    metadata, flavors = manifest["metadata"], list(flavors)
    return Workload(
        name=f"{metadata['namespace']}/{metadata['name']}",
        uid="",
        queue=queue,
        priority=priority,
        queued_at=now,
        pod_sets=tuple(_pod_set(pods, 0, flavors) for pods in pod_sets(manifest) if _chips(pods)),
        admission=None,
    )


def pod_sets(manifest: Object) -> Iterator[Object]:
    """Yield the pod sets that Kueue sees in a JobSet, as in a Workload."""
    for job in manifest["spec"]["replicatedJobs"]:
        spec = job["template"]["spec"]
        # Kubernetes' and JobSet's defaults.
        pods = spec.get("parallelism", 1)
        count = job.get("replicas", 1) * min(pods, spec.get("completions", pods))
        yield {"name": job["name"], "count": count, "template": spec["template"]}


def _pod_set(pods: Object, ended: int, flavors: list[Object]) -> PodSet:
    usable = usable_flavors(pods["template"]["spec"], flavors)
    return PodSet(name=pods["name"], chips=(pods["count"] - ended) * _chips(pods), flavors=usable)


def _chips(pods: Object) -> int:
    """Return the chips of one pod. For a pod without chips Kueue counts nothing and assigns no flavor."""
    return int(requests(pods["template"]["spec"]).get(TPU_RESOURCE, 0))


def name_of(manifest: Object) -> str:
    """Return the namespace and the name of the workload's JobSet, which people know, or else its own name."""
    metadata = manifest["metadata"]
    owners = [owner["name"] for owner in metadata.get("ownerReferences", []) if owner["kind"] == "JobSet"]
    return f"{metadata['namespace']}/{owners[0] if owners else metadata['name']}"


def usable_flavors(pod: Object, flavors: Iterable[Object]) -> frozenset[str]:
    """Return the names of the ResourceFlavors whose nodes a pod with this spec may use."""
    return frozenset(flavor["metadata"]["name"] for flavor in flavors if not obstacle(pod, flavor))


def obstacle(pod: Object, flavor: Object) -> str:
    """Return what nodes of a ResourceFlavor have that keeps a pod with this spec off them; empty if it may use them.

    It follows `checkFlavorForPodSets` in `pkg/scheduler/flavorassigner` of Kueue: taints must be tolerated, and of the
    pod's node selector and required node affinity only the flavor's own labels count.
    """
    spec = flavor.get("spec", {})
    tolerations = [*pod.get("tolerations", []), *spec.get("tolerations", [])]
    for taint in spec.get("nodeTaints", []):
        effect = taint["effect"]
        if effect != "PreferNoSchedule" and not any(_tolerates(toleration, taint) for toleration in tolerations):
            return f"taint {taint['key']}={taint.get('value', '')}:{effect}, which the pods do not tolerate"
    labels: Mapping[str, str] = spec.get("nodeLabels", {})
    for key, value in pod.get("nodeSelector", {}).items():
        if labels.get(key, value) != value:
            return f"label {key}={labels[key]}, and the pods select {value}"
    return "" if _in_affinity(pod, labels) else "labels that the node affinity of the pods excludes"


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", "")


def _in_affinity(pod: Object, labels: Mapping[str, str]) -> bool:
    node = pod.get("affinity", {}).get("nodeAffinity", {})
    terms = node.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    return not terms or any(_in_term(term, labels) for term in terms)


def _in_term(term: Object, labels: Mapping[str, str]) -> bool:
    """Return whether a flavor with these labels matches a term; other labels of the term are ignored."""
    return all(holds(rule, labels[rule["key"]]) for rule in term.get("matchExpressions", []) if rule["key"] in labels)


_PREEMPTION = {"withinClusterQueue": "Never", "reclaimWithinCohort": "Never"}
_FUNGIBILITY = {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"}
"""Kueue's defaults (apis/kueue/v1beta2/clusterqueue_types.go)."""
_OLD_WORDS = {"Borrow": "MayStopSearch", "Preempt": "MayStopSearch"}
"""Values of v1beta1 that v1beta2 renames."""
_NEVER_PREEMPTED = 2**31 - 1


def quotas(queue: Object) -> Iterator[tuple[str, Object]]:
    """Yield the quotas of a ClusterQueue, of all resources, each with its flavor."""
    for group in queue["spec"].get("resourceGroups", []):
        for flavor in group["flavors"]:
            yield from ((flavor["name"], resource) for resource in flavor["resources"])


def checks(queue: Object) -> Mapping[str, Sequence[str]]:
    """Return the admission checks of a ClusterQueue, each with the flavors that it applies to."""
    flavors = list(dict.fromkeys(flavor for flavor, _ in quotas(queue)))
    listed = queue["spec"].get("admissionChecksStrategy", {}).get("admissionChecks", [])
    old = {name: flavors for name in queue["spec"].get("admissionChecks", [])}
    return old | {check["name"]: check.get("onFlavors") or flavors for check in listed}


def chip_queue(found: Object) -> Queue | None:
    """Return a ClusterQueue with only its quotas of chips; `None` if it has none."""
    spec = found["spec"]
    flavors = [{"name": flavor, "resources": [each]} for flavor, each in quotas(found) if each["name"] == TPU_RESOURCE]
    if not flavors:
        return None
    fungibility = {key: _OLD_WORDS.get(word, word) for key, word in spec.get("flavorFungibility", {}).items()}
    active = condition(found, "Active").get("status") != "False"
    listed = [{"name": name, "onFlavors": on} for name, on in checks(found).items()]
    simulated = {
        "cohortName": cohort_of(found),
        "resourceGroups": [{"flavors": flavors}],
        "preemption": _PREEMPTION | spec.get("preemption", {}),
        "flavorFungibility": _FUNGIBILITY | fungibility,
        "admissionChecksStrategy": {"admissionChecks": listed},
        "fairSharing": spec.get("fairSharing", {}),
        # An inactive queue keeps its workloads and admits none, like one on hold.
        "stopPolicy": spec.get("stopPolicy", "None") if active or is_stopped(found) else "Hold",
    }
    return queue({"metadata": found["metadata"], "spec": simulated})


def situation(
    queues: Iterable[Object],
    local_queues: Iterable[Object],
    flavors: Iterable[Object],
    found: Iterable[Object],
    *,
    others_hidden: bool,
) -> Situation:
    """Return the queues with those of the workloads `found` that have or request chips, without fair sharing.

    With `others_hidden`, `found` are not all of the cluster. Then the status of each queue says how many chips the
    others hold, which are simulated as one workload that is never preempted.
    """
    by_name = {queue.name: queue for each in queues if (queue := chip_queue(each))}
    # A workload keeps its quota after its LocalQueue is deleted.
    local = {("", name): name for name in by_name}
    local |= {
        (each["metadata"]["namespace"], each["metadata"]["name"]): each["spec"]["clusterQueue"]
        for each in local_queues
        if each["spec"].get("clusterQueue") in by_name and not is_stopped(each)
    }
    seen = [each for each in workloads(found, local, flavors) if each.chips]
    if others_hidden:
        seen += [each for queue in queues for each in _hidden(queue, seen) if queue["metadata"]["name"] in by_name]
    return Situation(queues=tuple(by_name.values()), workloads=tuple(seen), fair_sharing=False)


def _hidden(queue: Object, seen: Iterable[Workload]) -> Iterator[Workload]:
    """Yield a workload with the chips that a queue has reserved for workloads that are not among `seen`."""
    name = queue["metadata"]["name"]
    visible = Counter[str]()
    for each in seen:
        if each.queue == name:
            visible.update(each.usage)
    for flavor, chips in reserved(queue, TPU_RESOURCE).items():
        if (count := int(chips) - visible[flavor]) > 0:
            yield Workload(
                name=f"workloads of other namespaces in {name}, on {flavor}",
                uid="",
                queue=name,
                priority=_NEVER_PREEMPTED,
                queued_at=0.0,
                pod_sets=(PodSet(name="hidden", chips=count, flavors=None),),
                admission=Admission(flavors=(flavor,), reserved_at=0.0, evicted=False),
            )


def reserved(queue: Object, resource: str) -> Mapping[str, float]:
    """Return how much of a resource the workloads of a ClusterQueue have, by flavor, as its status says."""
    return {
        flavor["name"]: amount(each.get("total", 0))
        for flavor in queue.get("status", {}).get("flavorsReservation", [])
        for each in flavor["resources"]
        if each["name"] == resource
    }
