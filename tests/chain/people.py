"""What a person asks of the API server about the jobs of a team, and the job that is asked about."""

import json
from collections.abc import Iterable, Mapping

from infra.cluster.kubernetes import ApiError, ApiServer, Json
from infra.stack.names import QUEUE_LABEL
from tests.chain.rivals import idle_jobset
from tests.chain.stack import wait_until

JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}/workloads"
PODS = "/api/v1/namespaces/{}/pods"


def jobset(namespace: str, name: str, *, queue: str) -> Json:
    """One host, which says that it has begun and sleeps."""
    job = idle_jobset(name, namespace, {QUEUE_LABEL: queue})
    (host,) = job["spec"]["replicatedJobs"]
    (container,) = host["template"]["spec"]["template"]["spec"]["containers"]
    container["command"] = ["sh", "-c", "echo begun; exec sleep 3600"]
    return job


def refusal(person: ApiServer, method: str, path: str, body: object = None) -> int | None:
    """The status with which the API server refuses."""
    content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
    try:
        person.request(method, path, body, content_type=content_type)
    except ApiError as error:
        return error.status
    return None


def rights(person: ApiServer, namespace: str) -> set[tuple[str, str, str]]:
    """(API group, resource, verb) of all that the API server would allow there."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    answer = person.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review)
    return granted(answer["status"]["resourceRules"])


def granted(rules: Iterable[Json]) -> set[tuple[str, str, str]]:
    """(API group, resource, verb) of all that the rules of a role allow."""
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def workloads(person: ApiServer, namespace: str, job: str) -> list[Json]:
    found = person.request("GET", WORKLOADS.format(namespace))["items"]
    return [item for item in found if item["metadata"]["ownerReferences"][0]["name"] == job]


def conditions(person: ApiServer, namespace: str, job: str) -> Mapping[str, str]:
    return {
        condition["type"]: condition["status"]
        for workload in workloads(person, namespace, job)
        for condition in workload.get("status", {}).get("conditions", [])
    }


def wait_for_pod(person: ApiServer, namespace: str, job: str) -> None:
    """Until the job's only pod runs."""

    def runs() -> bool:
        pods = person.request("GET", PODS.format(namespace))["items"]
        return [pod["status"]["phase"] for pod in pods if pod["metadata"]["name"].startswith(job)] == ["Running"]

    wait_until(runs, lambda: json.dumps(workloads(person, namespace, job)))


def workload_path(person: ApiServer, namespace: str, job: str) -> str:
    """Of the job's only Workload."""
    (workload,) = workloads(person, namespace, job)
    return f"{WORKLOADS.format(namespace)}/{workload['metadata']['name']}"


def objection(person: ApiServer, path: str, body: object) -> str:
    """What the API server says against an object, which it does not make; empty if it would."""
    try:
        person.request("POST", path, body, {"dryRun": "All"})
    except ApiError as error:
        return str(error)
    return ""


def admission(admin: ApiServer, spec: Json, namespace: str) -> str:
    """What the API server says against such a pod in a team's namespace; it is not made."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "rehearsed"}, "spec": spec}
    return objection(admin, PODS.format(namespace), pod)


def delete(person: ApiServer, namespace: str, job: str) -> None:
    person.delete(f"{JOBSETS.format(namespace)}/{job}", {"propagationPolicy": "Foreground"})
