"""Makes a situation of the objects of a live cluster, whoever made them, in either version of Kueue's API.

Only chips are simulated. What else these objects may contain is reported by the caller."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from infra.review.admission import manifests
from infra.review.admission.situation import Admission, PodSet, Queue, Situation, Workload
from infra.stack.manifests import Object, amount, cohort_of, condition
from infra.stack.names import TPU_RESOURCE

_PREEMPTION = {"withinClusterQueue": "Never", "reclaimWithinCohort": "Never"}
_FUNGIBILITY = {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"}
"""Kueue's defaults (apis/kueue/v1beta2/clusterqueue_types.go)."""
_OLD_WORDS = {"Borrow": "MayStopSearch", "Preempt": "MayStopSearch"}
"""Values of v1beta1 that v1beta2 renames."""
_NEVER_PREEMPTED = 2**31 - 1


def is_stopped(queue: Object) -> bool:
    """Return whether somebody has stopped a ClusterQueue or a LocalQueue."""
    return queue["spec"].get("stopPolicy", "None") != "None"


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
    return manifests.queue({"metadata": found["metadata"], "spec": simulated})


def related(queues: Iterable[Object], name: str) -> list[Object]:
    """Return a ClusterQueue, which must be among `queues`, and all others of its cohort."""
    found = list(queues)
    cohort = next(cohort_of(queue) for queue in found if queue["metadata"]["name"] == name)
    return [each for each in found if each["metadata"]["name"] == name or (cohort and cohort_of(each) == cohort)]


def situation(
    queues: Iterable[Object],
    local_queues: Iterable[Object],
    flavors: Iterable[Object],
    workloads: Iterable[Object],
    *,
    others_hidden: bool,
) -> Situation:
    """Return the queues with their workloads that have or request chips, without fair sharing.

    With `others_hidden`, `workloads` are not all of the cluster. Then the status of each queue says how many chips the
    others hold, which are simulated as one workload that is never preempted.
    """
    found = {queue.name: queue for each in queues if (queue := chip_queue(each))}
    # A workload keeps its quota after its LocalQueue is deleted.
    local = {("", name): name for name in found}
    local |= {
        (each["metadata"]["namespace"], each["metadata"]["name"]): each["spec"]["clusterQueue"]
        for each in local_queues
        if each["spec"].get("clusterQueue") in found and not is_stopped(each)
    }
    seen = [each for each in manifests.workloads(workloads, local, flavors) if each.chips]
    if others_hidden:
        seen += [each for queue in queues for each in _hidden(queue, seen) if queue["metadata"]["name"] in found]
    return Situation(queues=tuple(found.values()), workloads=tuple(seen), fair_sharing=False)


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
