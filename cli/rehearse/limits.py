"""What decides about a job besides quotas of chips: reasons why it cannot start, and what the simulation leaves out."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cli.rehearse.submission import Submission, SubmittedJob
from infra.cluster.kueue_objects import CONFIG_MAP
from infra.review.admission import manifests
from infra.review.admission.manifests import obstacle, pod_sets, usable_flavors
from infra.review.admission.rehearsal import Outcome, Verdict
from infra.stack.manifests import Object, amount, cohort_of, condition, is_stopped, is_true, requests, selects
from infra.stack.names import (
    GATES,
    KUEUE_API_VERSION,
    KUEUE_GROUP,
    KUEUE_NAMESPACE,
    NAMESPACE_LABEL,
    PROVISIONING_CONTROLLER,
    TPU_RESOURCE,
)

_PREBUILT = f"{KUEUE_GROUP}/prebuilt-workload-name"
_ELASTIC = f"{KUEUE_GROUP}/elastic-job"
_MIN_PARALLELISM = f"{KUEUE_GROUP}/job-min-parallelism"
_POD_SET = f"{KUEUE_GROUP}/podset-"
"""Prefix of the annotations of pods that ask for topology-aware scheduling."""
_MANAGERS = ("", "jobset.sigs.k8s.io/jobset-controller", "kubernetes.io/job-controller")
_FRAMEWORKS = {"JobSet": "jobset.x-k8s.io/jobset", "Job": "batch/job"}
_SIMULATED = "0.19"
"""Version of Kueue that the simulation follows."""
_MAX_POD_SETS = 18
"""Maximum number of pod sets of a Workload, as its CustomResourceDefinition says."""
_DEFAULTS = (("default", "limits"), ("defaultRequest", "requests"))
"""Keys of a LimitRange, and which resources of a container they add."""
_STRATEGIES = {"LessThanOrEqualToFinalShare", "LessThanInitialShare"}
"""Kueue's usual strategies of preemption with fair sharing, which are simulated together."""
_GATES = {
    "FairSharingPreemptWithinNominal",
    "FairSharingPrioritizeNonBorrowing",
    "FlavorFungibility",
    "FlavorFungibilityPreserveScanProgress",
    "PriorityBoost",
    "PrioritizePreemptorWorkloads",
    "PrioritySortingWithinCohort",
    "ReclaimablePods",
    "RecomputeAssignmentUponPreemptionTargetsOverlap",
    "SchedulerTimestampPreemptionBuffer",
    "WorkloadPriorityClassDefaulting",
}
"""Feature gates that change decisions (`pkg/features/kube_features.go` of Kueue)."""
_NEVER: frozenset[Outcome] = frozenset({"never"})
FITS: frozenset[Outcome] = frozenset({"admitted", "never"})
"""Outcomes without preemption or waiting."""
NOTHING: frozenset[Outcome] = frozenset()
_WAITS: frozenset[Outcome] = frozenset({"waits", "never"})
_ALL: frozenset[Outcome] = frozenset({"admitted", "preempts", "waits", "never"})


@dataclass(frozen=True)
class Gap:
    """Something that the simulation leaves out."""

    text: str
    harmless: frozenset[Outcome] = _NEVER
    """Outcomes of the simulation that are right in spite of it."""


def holds(submission: Submission) -> Iterator[str]:
    """Yield why its queues admit nothing now."""
    if is_stopped(submission.local_queue):
        yield f"LocalQueue {submission.local_queue['metadata']['name']} is stopped (stopPolicy)"
    if gates := submission.job.annotations.get(GATES):
        yield f"{submission.job.kind} {submission.job.name} waits until its gates are removed: {gates} ({GATES})"
    active = condition(submission.queue, "Active")
    if is_stopped(submission.queue):
        yield f"{submission.title} is stopped (stopPolicy)"
    elif active.get("status") == "False":
        yield f"{submission.title} is inactive: {active.get('message') or active.get('reason')}"


def blocks(submission: Submission) -> Iterator[str]:
    """Yield why its ClusterQueue never admits it, whatever is free."""
    if manifests.chip_queue(submission.queue) is None:
        yield f"{submission.title} has no quota of {TPU_RESOURCE}"
    if submission.objects.configuration is not None and (names := _uncovered(submission)):
        yield f"it requests {names}, of which {submission.title} has no quota"
    yield from _without_counted_resources(submission)
    if (count := len(submission.job.pods)) > _MAX_POD_SETS:
        yield f"it has {count} replicated jobs, and Kueue takes at most {_MAX_POD_SETS}"
    if _selected(submission) is False:
        yield f"the namespaceSelector of {submission.title} does not select namespace {submission.job.namespace}"
    yield from _unsuitable_flavors(submission)


def _without_counted_resources(submission: Submission) -> Iterator[str]:
    """Yield the pods for which Kueue 0.19 writes no assignment, so the API server refuses the whole admission."""
    for name, pods in submission.job.pods.items():
        asked = requests(pods["spec"])
        if asked and _ignores_undeclared(submission) and _covered(submission).isdisjoint(asked):
            yield f"the pods of {name} request nothing that {submission.title} counts (quotaCheckStrategy)"


def _unsuitable_flavors(submission: Submission) -> Iterator[str]:
    offered = {flavor for flavor, resource in manifests.quotas(submission.queue) if resource["name"] == TPU_RESOURCE}
    flavors = [each for each in submission.objects.lists["resourceflavors"] if each["metadata"]["name"] in offered]
    for name, pods in submission.job.pods.items():
        found = {each["metadata"]["name"]: obstacle(pods["spec"], each) for each in flavors}
        if found and all(found.values()) and TPU_RESOURCE in requests(pods["spec"]):
            why = "; ".join(f"those of {flavor} have {reason}" for flavor, reason in found.items())
            yield f"no flavor of {submission.title} has nodes for the pods of {name}: {why}"


def gaps(submission: Submission) -> Iterator[Gap]:
    """Yield what the simulation of this job leaves out."""
    yield from _of_job(submission.job)
    yield from _of_queue(submission)
    yield from _of_cohort(submission)
    yield from _of_checks(submission)
    yield from _of_other_resources(submission)
    yield from _of_limit_ranges(submission)
    yield from _of_workloads(submission)
    yield from _of_configuration(submission)


def of_verdict(submission: Submission, verdict: Verdict) -> Iterator[Gap]:
    """Yield signs in the result of the simulation that it may be wrong here."""
    if verdict.preempts_in_circles:
        yield Gap("workloads of these queues preempt each other in turn, so the end depends on chance")
    if submission.unknown_priority:
        yield Gap(f"its priority is taken for 0, because you may not {submission.unknown_priority}", FITS)
    if early := sorted({*verdict.started_first} - submission.earlier):
        # Kueue also leaves out jobs like those that it has set aside in their queue.
        job = submission.workload
        mine = [each for each in submission.situation.workloads if each.queue == job.queue and each.name in early]
        alike = any((each.priority, each.pod_sets) == (job.priority, job.pod_sets) for each in mine)
        text = f"{early[0]} waits although its chips are free, so something else may hold back jobs here"
        yield Gap(text, _NEVER if alike else FITS)


def _of_job(job: SubmittedJob) -> Iterator[Gap]:
    annotations = job.annotations
    if _PREBUILT in job.labels or _PREBUILT in annotations:
        yield Gap(f"{job.kind} {job.name} uses an existing Workload ({_PREBUILT}), which may differ from it", NOTHING)
    if annotations.get(_ELASTIC) == "true":
        yield Gap(f"{job.kind} {job.name} is elastic ({_ELASTIC}), so it may change its size", NOTHING)
    if _MIN_PARALLELISM in annotations:
        yield Gap(f"{job.kind} {job.name} accepts fewer pods ({_MIN_PARALLELISM}), so it may start in part", NOTHING)
    if (manager := job.manifest["spec"].get("managedBy", "")) not in _MANAGERS:
        yield Gap(f"{job.kind} {job.name} is managed by {manager}, not by this cluster", NOTHING)
    for name, pods in job.pods.items():
        asked = sorted(key for key in pods.get("metadata", {}).get("annotations", {}) if key.startswith(_POD_SET))
        if asked:
            yield Gap(f"replicated job {name} asks for topology-aware scheduling ({asked[0]}), which needs free hosts")
        if runtime := pods["spec"].get("runtimeClassName"):
            yield Gap(f"replicated job {name} has the RuntimeClass {runtime}, which may add requests")
        if pods["spec"].get("resourceClaims"):
            yield Gap(f"replicated job {name} has resource claims, whose devices are not simulated")


def _of_queue(submission: Submission) -> Iterator[Gap]:
    spec, title = submission.queue["spec"], submission.title
    waiting = {each.queue for each in submission.situation.workloads if each.admission is None}
    for each in submission.related:
        if (name := each["metadata"]["name"]) in waiting and each["spec"].get("queueingStrategy") == "StrictFIFO":
            yield Gap(f"ClusterQueue {name} is StrictFIFO: its first waiting workload may block those behind it")
    if submission.queue_name in waiting and "admissionScope" in spec:
        yield Gap(f"{title} has admission fair sharing, which orders its waiting workloads by past usage")
    if "concurrentAdmissionPolicy" in spec:
        yield Gap(f"{title} has concurrent admission, which tries several flavors at once")
    if spec.get("flavorFungibility", {}).get("preference"):
        harmless = _NEVER if len(submission.flavors) > 1 else FITS
        yield Gap(f"{title} has a preference in flavorFungibility, which changes the order of flavors", harmless)
    if "maxPriorityThreshold" in spec.get("preemption", {}).get("borrowWithinCohort", {}):
        yield Gap(f"{title} has a maxPriorityThreshold, which protects some workloads from preemption", FITS)
    if _selected(submission) is None:
        yield Gap(f"{title} admits namespaces by labels, and you may not get namespace {submission.job.namespace}")
    for flavor in submission.objects.lists["resourceflavors"]:
        name = flavor["metadata"]["name"]
        if name in submission.flavors and flavor.get("spec", {}).get("topologyName"):
            yield Gap(f"ResourceFlavor {name} is topology-aware, which also needs free hosts in one place")


def _of_cohort(submission: Submission) -> Iterator[Gap]:
    name = cohort_of(submission.queue)
    if name is None:
        return
    cohort = submission.objects.named("cohorts", name)
    if right := submission.objects.refused.get("cohorts"):
        yield Gap(f"Cohort {name} may be part of another one or have chips of its own: you may not {right}", NOTHING)
    elif cohort and (parent := cohort["spec"].get("parentName") or cohort["spec"].get("parent")):
        yield Gap(f"Cohort {name} is part of Cohort {parent}, and nested cohorts are not simulated", NOTHING)
    elif cohort and cohort["spec"].get("resourceGroups"):
        yield Gap(f"Cohort {name} has quotas of its own, which are not simulated", NOTHING)
    for each in submission.objects.lists["cohorts"]:
        if name in (each["spec"].get("parentName"), each["spec"].get("parent")):
            child = each["metadata"]["name"]
            yield Gap(f"Cohort {child} is part of Cohort {name}, and nested cohorts are not simulated", NOTHING)


def _of_checks(submission: Submission) -> Iterator[Gap]:
    for name, flavors in manifests.checks(submission.queue).items():
        if submission.flavors.isdisjoint(flavors):
            continue
        check = submission.objects.named("admissionchecks", name)
        controller = check["spec"].get("controllerName", "unknown") if check else "unknown"
        if controller == PROVISIONING_CONTROLLER:
            yield Gap(f"AdmissionCheck {name} lets it start only when its hosts have been created", _ALL)
        else:
            yield Gap(f"AdmissionCheck {name} (controller {controller}) must also accept it", _WAITS)


def _of_other_resources(submission: Submission) -> Iterator[Gap]:
    if submission.objects.configuration is None and (names := _uncovered(submission)):
        yield Gap(
            f"it requests {names}, of which {submission.title} has no quota: it is never admitted, unless Kueue's"
            " configuration, which cannot be read, leaves them out"
        )
    short = {name for queue in submission.related for name in _short_resources(submission, queue)}
    for name, resource in sorted(short):
        yield Gap(f"ClusterQueue {name} also counts {resource}, of which it may have too little")


def _of_limit_ranges(submission: Submission) -> Iterator[Gap]:
    """Yield the LimitRanges of the namespace that may add requests to the pods, or refuse those they have."""
    if right := submission.objects.refused.get("limitranges"):
        yield Gap(f"a LimitRange may add requests to its pods, and you may not {right}", _ALL)
    specs = [pods["spec"] for pods in submission.job.pods.values()]
    containers = [each for spec in specs for each in (*spec["containers"], *spec.get("initContainers", []))]
    asked = [each.get("resources", {}) for each in containers]
    for found in submission.objects.lists["limitranges"]:
        rules = [rule for rule in found["spec"].get("limits", []) if rule["type"] != "PersistentVolumeClaim"]
        added = {(kind, name) for rule in rules for key, kind in _DEFAULTS for name in rule.get(key, {})}
        bounded = any(key in rule for rule in rules for key in ("min", "max", "maxLimitRequestRatio"))
        if bounded or any(name not in each.get(kind, {}) for each in asked for kind, name in added):
            yield Gap(f"LimitRange {found['metadata']['name']} may add requests to its pods, or refuse theirs")


def _of_workloads(submission: Submission) -> Iterator[Gap]:
    for plural in ("workloads", "localqueues"):
        if right := submission.objects.refused.get(plural):
            yield Gap(f"workloads of other namespaces may hold or wait for chips, and you may not {right}", FITS)
            break
    partial = [
        f"{each['metadata']['namespace']}/{each['metadata']['name']}"
        for _, each in submission.competing
        if any("minCount" in pods for pods in each["spec"]["podSets"])
    ]
    if partial:
        yield Gap(f"Workload {partial[0]} accepts fewer pods (minCount), so it may hold fewer chips than it requests")


def _of_configuration(submission: Submission) -> Iterator[Gap]:
    config, kind = submission.objects.configuration, submission.job.kind
    if submission.objects.api_version != KUEUE_API_VERSION:
        served = submission.objects.api_version
        yield Gap(f"this Kueue serves {served} only, and the simulation follows Kueue {_SIMULATED}", _ALL)
    elif (version := submission.objects.kueue_version) and not version.startswith(f"v{_SIMULATED}."):
        yield Gap(f"this Kueue is {version}, and the simulation follows Kueue {_SIMULATED}", _ALL)
    if config is None:
        yield Gap(f"the ConfigMap {KUEUE_NAMESPACE}/{CONFIG_MAP} cannot be read, so Kueue's defaults are assumed", _ALL)
        return
    frameworks = config.get("integrations", {}).get("frameworks")
    if frameworks is not None and _FRAMEWORKS[kind] not in frameworks:
        yield Gap(
            f"Kueue's configuration does not list {_FRAMEWORKS[kind]}, so it does not hold back a {kind}", NOTHING
        )
    managed, labels = config.get("managedJobsNamespaceSelector"), submission.objects.namespace_labels
    if managed and labels is not None and not selects(managed, {NAMESPACE_LABEL: submission.job.namespace, **labels}):
        yield Gap(f"Kueue's managedJobsNamespaceSelector leaves out namespace {submission.job.namespace}", NOTHING)
    if config.get("waitForPodsReady", {}).get("blockAdmission"):
        yield Gap("Kueue admits nothing while admitted pods are not ready (waitForPodsReady.blockAdmission)")
    asked = {TPU_RESOURCE, *(name for pods in submission.job.pods.values() for name in requests(pods["spec"]))}
    for each in config.get("resources", {}).get("transformations", []):
        if changed := asked & {each.get("input"), *each.get("outputs", {})}:
            yield Gap(f"Kueue's configuration transforms {', '.join(sorted(changed))}", NOTHING)
    if strategies := set(config.get("fairSharing", {}).get("preemptionStrategies", _STRATEGIES)) ^ _STRATEGIES:
        yield Gap(f"Kueue's fair sharing has other preemptionStrategies than usual: {', '.join(strategies)}", FITS)
    if gates := _GATES & config.get("featureGates", {}).keys():
        yield Gap(f"Kueue's configuration sets feature gates: {', '.join(sorted(gates))}", NOTHING)


def _selected(submission: Submission) -> bool | None:
    """Return whether the ClusterQueue admits jobs of the namespace. `None` if that depends on unreadable labels."""
    selector = submission.queue["spec"].get("namespaceSelector")
    if selector is None:
        return False
    known, labels = {NAMESPACE_LABEL: submission.job.namespace}, submission.objects.namespace_labels
    keys = {*selector.get("matchLabels", {}), *(each["key"] for each in selector.get("matchExpressions", []))}
    if labels is None and keys - known.keys():
        return None
    return selects(selector, {**known, **(labels or {})})


def _uncovered(submission: Submission) -> str:
    if _ignores_undeclared(submission):
        return ""
    excluded = tuple(_resource_settings(submission).get("excludeResourcePrefixes", []))
    asked = {name for pods in submission.job.pods.values() for name in requests(pods["spec"])}
    missing = asked - _covered(submission) - {TPU_RESOURCE}
    return ", ".join(sorted(name for name in missing if not name.startswith(excluded)))


def _covered(submission: Submission) -> set[str]:
    return {resource["name"] for _, resource in manifests.quotas(submission.queue)}


def _ignores_undeclared(submission: Submission) -> bool:
    return _resource_settings(submission).get("quotaCheckStrategy") == "IgnoreUndeclared"


def _resource_settings(submission: Submission) -> Object:
    return (submission.objects.configuration or {}).get("resources", {})


def _short_resources(submission: Submission, queue: Object) -> Iterator[tuple[str, str]]:
    """Yield a ClusterQueue with each resource other than chips that may not suffice for all its workloads.

    If each queue has enough for everything that waits in it, the resource decides nothing.
    """
    name = queue["metadata"]["name"]
    quotas = {(flavor, each["name"]): amount(each["nominalQuota"]) for flavor, each in manifests.quotas(queue)}
    chipless = {flavor for (flavor, resource), quota in quotas.items() if resource == TPU_RESOURCE and not quota}
    requested = {"pods", *(each for pods in submission.job.pods.values() for each in requests(pods["spec"]))}
    needed = defaultdict[tuple[str, str], float](float)
    for pods in _waiting_pods(submission, name):
        spec = pods["template"]["spec"]
        asked = {**requests(spec), "pods": 1}
        usable = usable_flavors(spec, submission.objects.lists["resourceflavors"])
        for flavor in usable - chipless if TPU_RESOURCE in asked else usable:
            for resource, each in asked.items():
                needed[flavor, resource] += pods["count"] * each
    for (flavor, resource), quota in quotas.items():
        used = manifests.reserved(queue, resource).get(flavor, 0)
        if resource in requested - {TPU_RESOURCE} and used + needed[flavor, resource] > quota:
            yield name, resource


def _waiting_pods(submission: Submission, queue: str) -> Iterator[Object]:
    """Yield the pod sets that wait for quota of a ClusterQueue, including those of the job."""
    if queue == submission.queue_name:
        yield from pod_sets(submission.job.manifest)
    for name, each in submission.competing:
        if name == queue and not is_true(each, "QuotaReserved"):
            yield from each["spec"]["podSets"]


def decisive(found: Sequence[Gap], outcome: Outcome) -> list[Gap]:
    """Return the gaps that may make this outcome of the simulation wrong."""
    return [gap for gap in found if outcome not in gap.harmless]
