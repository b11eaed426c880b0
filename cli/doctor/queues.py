"""Queues: whether they admit, and whether a job would be taken."""

from cli.doctor.check import Check, Findings, Scope, fault, ok
from cli.observed.objects import condition, is_true
from infra.kubernetes import ApiError, Json
from infra.names import (
    JOBSET_API_VERSION,
    JOBSET_NAMESPACE,
    JOBSETS,
    KUEUE_API_VERSION,
    KUEUE_NAMESPACE,
    QUEUE_LABEL,
    TPU_RESOURCE,
    WORKLOADS,
)


def active(scope: Scope) -> Findings:
    """Whether each queue of the stack admits jobs."""
    for name, namespace in scope.standing.outputs["queues"].items():
        queue = scope.api.find(f"/apis/{KUEUE_API_VERSION}/clusterqueues/{name}")
        local = scope.api.find(f"/apis/{KUEUE_API_VERSION}/namespaces/{namespace}/localqueues/{name}")
        # A team's `admission: hold` makes both inactive; that is no fault.
        stopped = queue["spec"].get("stopPolicy", "None") if queue else "None"
        for subject, found in ((f"queue {name}", queue), (f"local queue {name}", local)):
            if found and stopped != "None":
                yield ok(subject, f"admits no job, as the queue's stopPolicy is {stopped}")
            else:
                yield _active(subject, found, scope.stack)


def controllers(scope: Scope) -> Findings:
    """Whether JobSet and Kueue run."""
    for namespace in (JOBSET_NAMESPACE, KUEUE_NAMESPACE):
        for deployment in scope.listed(f"/apis/apps/v1/namespaces/{namespace}/deployments"):
            subject, available = deployment["metadata"]["name"], condition(deployment, "Available")
            if available.get("status") == "True":
                yield ok(subject, "available")
            else:
                yield fault(subject, available.get("message", "not available"), f"kubectl describe pods -n {namespace}")


def submission(scope: Scope) -> Findings:
    """Whether a job would be taken; it is rehearsed, not made."""
    for place in scope.standing.jobs:
        subject, path = f"a job in {place.namespace}", JOBSETS.format(place.namespace)
        try:
            scope.api.request("POST", path, _small(place.queue), {"dryRun": "All"})
        except ApiError as error:
            if error.status == 403 and "webhook" not in str(error):
                raise
            yield fault(subject, str(error), "see the controllers above: kubectl get pods -n kueue-system")
        else:
            yield ok(subject, "would be taken")


def waiting(scope: Scope) -> Findings:
    """Who waits, and for what."""
    for namespace in sorted({place.namespace for place in scope.standing.jobs}):
        workloads = scope.listed(WORKLOADS.format(namespace))
        waits = [each for each in workloads if not is_true(each, "QuotaReserved") and not is_true(each, "Finished")]
        why = "; ".join(_why(each) for each in waits)
        yield ok(f"namespace {namespace}", f"{len(waits)} wait: {why}" if waits else "nobody waits")


def _active(subject: str, found: Json | None, stack: str) -> Check:
    if found is None:
        return fault(subject, "it is not there", f"pulumi up --refresh --stack {stack}")
    told = condition(found, "Active")
    if told.get("status") == "True":
        return ok(subject, told.get("message", "active"))
    return fault(subject, told.get("message", "Kueue has said nothing of it"), "kubectl describe clusterqueue")


def _why(workload: Json) -> str:
    why = condition(workload, "QuotaReserved").get("message", "not looked at yet")
    return f"{workload['metadata']['name']}: {why}"


def _small(queue: str) -> Json:
    """A JobSet of one small pod, which holds a chip as the admission policies of teams demand."""
    main = {"name": "main", "image": "busybox", "resources": {"limits": {TPU_RESOURCE: "1"}}}
    pod = {"restartPolicy": "Never", "containers": [main]}
    job = {"parallelism": 1, "completions": 1, "template": {"spec": pod}}
    return {
        "apiVersion": JOBSET_API_VERSION,
        "kind": "JobSet",
        "metadata": {"name": "rehearsed-by-doctor", "labels": {QUEUE_LABEL: queue}},
        "spec": {"replicatedJobs": [{"name": "host", "template": {"spec": job}}]},
    }
