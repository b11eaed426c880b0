"""Who may do what in the teams' namespaces, asked of the real API server, and which pods it takes there.

The jobs of the tests sleep. Members are impersonated by the names that GKE would give them.
"""

import json
from collections.abc import Generator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import urllib3
from urllib3.exceptions import HTTPError

from infra.cluster.kubernetes import ApiError, ApiServer, Json
from infra.stack import access, pods
from infra.stack.job_objects import call_secret
from infra.stack.names import JOBSET_API_VERSION, RESTARTS_ANNOTATION, SERVICE_ACCOUNT
from infra.stack.pods import CONFINED_CONTAINER, CONFINED_POD
from infra.stack.settings.read import parse
from infra.stack.settings.schema import Network
from sandbox.site import etcd
from tests.chain.people import (
    JOBSETS,
    PODS,
    WORKLOADS,
    admission,
    conditions,
    delete,
    granted,
    jobset,
    objection,
    refusal,
    rights,
    wait_for_pod,
    workload_path,
    workloads,
)
from tests.chain.shared import ADA, GROUP, HELD, TEAMS
from tests.chain.stack import Chain, wait_until
from tests.infra.recording import stack_values

STRANGER = {"Impersonate-User": "stranger@example.com"}
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/first"
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"


@pytest.fixture(scope="module")
def admin(stack: Chain) -> ApiServer:
    """The API server of a stack of teams with members, as its administrator."""
    return stack.api


@pytest.fixture
def ada(admin: ApiServer) -> ApiServer:
    """The API server as a member of the first team by name."""
    return replace(admin, credentials=lambda: {"Impersonate-User": ADA})


@pytest.fixture
def bob(admin: ApiServer) -> ApiServer:
    """The API server as a member of the second team by a group."""
    return replace(admin, credentials=lambda: {"Impersonate-User": "bob@example.com", "Impersonate-Group": GROUP})


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_sandboxs_etcd_answers_nobody_without_its_key(stack: Chain, scheme: str) -> None:
    every_key = {"key": "AA==", "range_end": "AA==", "limit": 1}
    place = f"{stack.site.address}:{stack.site.etcd_port}/v3/kv/range"
    assert etcd(stack.site).request("POST", f"https://{place}", json=every_key).json()["kvs"]
    stranger = urllib3.PoolManager(ca_certs=str(stack.site.pki / "ca.crt"))
    with pytest.raises(HTTPError):
        stranger.request("POST", f"{scheme}://{place}", json=every_key, retries=False)


def test_a_member_submits_a_job_which_runs_sees_all_of_it_and_deletes_it(stack: Chain, ada: ApiServer) -> None:
    ada.request("POST", JOBSETS.format("first"), jobset("first", "own", queue="first"))
    wait_for_pod(ada, "first", "own")
    assert conditions(ada, "first", "own")["Admitted"] == "True"
    (pod,) = ada.request("GET", PODS.format("first"))["items"]
    as_ada = ("-n", "first", f"--as={ADA}")
    wait_until(lambda: "begun" in stack.kubectl("logs", pod["metadata"]["name"], *as_ada), lambda: "no log")
    assert "own" in stack.kubectl("get", "events", *as_ada)
    stack.kubectl("delete", "jobset", "own", "--cascade=foreground", *as_ada)


def test_a_job_that_names_the_queue_of_another_team_is_not_admitted(ada: ApiServer) -> None:
    ada.request("POST", JOBSETS.format("first"), jobset("first", "guest", queue="second"))
    wait_until(lambda: conditions(ada, "first", "guest").get("QuotaReserved") == "False", lambda: "not looked at")
    (workload,) = workloads(ada, "first", "guest")
    assert "LocalQueue second doesn't exist" in json.dumps(workload["status"])
    assert "admission" not in workload["status"]
    assert ada.request("GET", f"{JOBSETS.format('first')}/guest")["spec"]["suspend"] is True
    delete(ada, "first", "guest")


def test_a_member_suspends_a_job_of_the_team_and_resumes_it(ada: ApiServer) -> None:
    ada.request("POST", JOBSETS.format("first"), jobset("first", "paused", queue="first"))
    wait_for_pod(ada, "first", "paused")
    path = workload_path(ada, "first", "paused")
    ada.patch(path, {"spec": {"active": False}})
    wait_until(lambda: not ada.request("GET", PODS.format("first"))["items"], lambda: "its pod stays")
    ada.patch(path, {"spec": {"active": True}})
    wait_for_pod(ada, "first", "paused")
    delete(ada, "first", "paused")


@pytest.fixture(scope="module")
def fixed(admin: ApiServer) -> Generator[str]:
    """The path of a workload of the first team, of which no member may change anything but one field."""
    job = jobset("first", "fixed", queue="second")
    job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "normal"
    admin.request("POST", JOBSETS.format("first"), job)
    wait_until(lambda: bool(workloads(admin, "first", "fixed")), lambda: "Kueue has no workload for it")
    yield workload_path(admin, "first", "fixed")
    delete(admin, "first", "fixed")
    wait_until(lambda: not workloads(admin, "first", "fixed"), lambda: "its workload stays")


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"priority": 1_000_000}},
        {"spec": {"priorityClassRef": None}},
        {"spec": {"queueName": "third"}},
        {"spec": {"maximumExecutionTimeSeconds": 1}},
        {"spec": {"podSets": []}},
        {"metadata": {"labels": {"any": "label"}}},
        {"metadata": {"annotations": {"any": "annotation"}}},
        {"metadata": {"finalizers": None}},
        {"metadata": {"ownerReferences": None}},
    ],
    ids=json.dumps,
)
def test_a_member_changes_nothing_else_of_a_workload(ada: ApiServer, fixed: str, change: Json) -> None:
    with pytest.raises(ApiError, match="a member changes spec.active, .* and nothing else|podSets"):
        ada.patch(fixed, change)


def test_a_member_keeps_the_causes_of_the_restarts_of_a_job(ada: ApiServer, fixed: str) -> None:
    for text in ("{}", None):
        ada.patch(fixed, {"metadata": {"annotations": {RESTARTS_ANNOTATION: text}}})
        assert ada.request("GET", fixed)["metadata"].get("annotations", {}).get(RESTARTS_ANNOTATION) == text


def test_a_member_has_the_rights_of_the_role_in_the_own_namespace_and_none_anywhere_else(
    admin: ApiServer, ada: ApiServer, bob: ApiServer
) -> None:
    role: Any = access.role("first")
    everyones = rights(replace(admin, credentials=lambda: STRANGER), "first")
    assert rights(ada, "first") - everyones == granted(role["rules"])
    assert rights(bob, "second") - everyones == granted(role["rules"])
    for elsewhere in ("second", "research", "lab", "kueue-system", "kube-system", "default"):
        assert rights(ada, elsewhere) <= everyones


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PATCH", f"{KUEUE}/clusterqueues/first"),
        ("POST", f"{KUEUE}/namespaces/first/localqueues"),
        ("PATCH", f"{KUEUE}/namespaces/first/localqueues/first"),
        ("PATCH", f"{KUEUE}/workloadpriorityclasses/high"),
        ("POST", WORKLOADS.format("first")),
        ("DELETE", f"{WORKLOADS.format('first')}/any"),
        ("PATCH", f"{WORKLOADS.format('second')}/any"),
        ("PATCH", f"{JOBSETS.format('first')}/any"),
        ("POST", JOBSETS.format("second")),
        ("GET", "/apis/jobset.x-k8s.io/v1alpha2/jobsets"),
        ("GET", "/api/v1/nodes"),
        ("GET", "/api/v1/namespaces/first/secrets"),
        ("POST", PODS.format("first")),
        ("POST", f"{PODS.format('first')}/any/exec"),
        ("PATCH", f"{PODS.format('first')}/any/ephemeralcontainers"),
        ("POST", f"/api/v1/namespaces/first/serviceaccounts/{SERVICE_ACCOUNT}/token"),
        ("PATCH", "/api/v1/namespaces/first"),
        ("DELETE", f"/apis/networking.k8s.io/v1/namespaces/first/networkpolicies/{access.NETWORK_POLICY}"),
        ("PATCH", f"{RBAC}/roles/{access.MEMBERS}"),
        ("POST", f"{RBAC}/rolebindings"),
    ],
)
def test_a_member_cannot_go_round_queue_pod_security_or_role(ada: ApiServer, method: str, path: str) -> None:
    assert refusal(ada, method, path, {}) == 403


def test_pods_without_an_account_of_their_own_may_do_nothing(admin: ApiServer) -> None:
    name = "system:serviceaccount:first:default"
    who = {"Impersonate-User": name, "Impersonate-Group": "system:serviceaccounts"}
    account = replace(admin, credentials=lambda: who)
    assert rights(account, "first") <= rights(replace(admin, credentials=lambda: STRANGER), "first")


def test_the_pods_of_the_stacks_own_job_are_admitted(admin: ApiServer) -> None:
    assert admission(admin, _trainer(admin), "lab") == ""
    assert admission(admin, _trainer_on_the_pod_network(admin), "first") == ""


@pytest.mark.parametrize(
    ("pod", "container", "says"),
    [
        ({}, {"securityContext": {"privileged": True}}, "privileged"),
        ({"securityContext": {**CONFINED_POD, "runAsUser": 0}}, {}, "runAsUser=0"),
        ({"securityContext": {**CONFINED_POD, "runAsNonRoot": False}}, {}, "runAsNonRoot != true"),
        ({"volumes": [{"name": "host", "hostPath": {"path": "/"}}]}, {}, "hostPath"),
        ({"hostNetwork": True}, {}, "host namespaces"),
        ({"hostPID": True}, {}, "host namespaces"),
        ({"securityContext": {**CONFINED_POD, "seccompProfile": {"type": "Unconfined"}}}, {}, "seccompProfile"),
        ({}, {"securityContext": {**CONFINED_CONTAINER, "capabilities": {}}}, "unrestricted capabilities"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_a_pod_with_rights_on_its_host_is_refused(admin: ApiServer, pod: Json, container: Json, says: str) -> None:
    refused = admission(admin, _changed(_trainer_on_the_pod_network(admin), pod, container), "first")
    assert 'violates PodSecurity "restricted' in refused
    assert says in refused


@pytest.mark.parametrize(
    ("pod", "container", "says"),
    [
        ({}, {"securityContext": {"privileged": True}}, "containers here have"),
        ({}, {"securityContext": {"allowPrivilegeEscalation": False}}, "containers here have"),
        ({}, {"securityContext": {**CONFINED_CONTAINER, "capabilities": {"add": ["BPF"]}}}, "containers here have"),
        ({"initContainers": [{"name": "first", "image": "busybox"}]}, {}, "containers here have"),
        ({"securityContext": {**CONFINED_POD, "runAsUser": 0, "runAsNonRoot": False}}, {}, "pods here have"),
        ({"securityContext": {}}, {}, "pods here have"),
        ({"volumes": [{"name": "host", "hostPath": {"path": "/"}}]}, {}, "mount nothing of their host"),
        ({"hostPID": True}, {}, "share no processes with their host"),
        ({"hostIPC": True}, {}, "share no processes with their host"),
    ],
)
def test_where_the_hosts_network_is_used_a_pod_gets_nothing_else_of_its_host(
    admin: ApiServer, pod: Json, container: Json, says: str
) -> None:
    assert says in admission(admin, _changed(_trainer(admin), pod, container), "lab")


def _changed(trainer: Json, pod: Json, container: Json) -> Json:
    changed = deepcopy(trainer)
    changed["containers"][0] |= {"volumeMounts": []} | container
    return changed | pod


@pytest.mark.parametrize(
    ("pod", "container", "says"),
    [
        ({}, {"resources": {}}, "a pod of the account trainer holds google.com/tpu"),
        ({}, {"resources": {"limits": {"google.com/tpu": 0}}}, "a pod of the account trainer holds google.com/tpu"),
        ({"nodeName": "any"}, {}, "a pod of the account trainer leaves nodeName to the scheduler"),
    ],
)
def test_a_pod_that_acts_as_a_trainer_gets_to_a_node_by_its_chips_alone(
    admin: ApiServer, pod: Json, container: Json, says: str
) -> None:
    changed = _changed(_trainer_on_the_pod_network(admin), {"affinity": _beside_its_job(), **pod}, container)
    assert says in admission(admin, changed, "first")
    assert admission(admin, changed | {"serviceAccountName": "default"}, "first") == ""


@pytest.mark.parametrize("key", [{"key": "google.com/tpu"}, {}])
def test_a_pod_without_chips_gets_to_no_hosts_of_slices_but_beside_its_own_job(admin: ApiServer, key: Json) -> None:
    tolerating = {"serviceAccountName": "default", "tolerations": [{**key, "operator": "Exists"}]}
    pod = _changed(_trainer_on_the_pod_network(admin), tolerating, {"resources": {}})
    assert "gets to hosts of slices only next to its own job" in admission(admin, pod, "first")
    beside = _beside_its_job()
    assert admission(admin, pod | {"affinity": beside}, "first") == ""
    (term,) = beside["podAffinity"][APART]
    elsewhere = {"podAffinity": {APART: [{**term, "namespaces": ["second"]}]}}
    assert admission(admin, pod | {"affinity": elsewhere}, "first") != ""


@pytest.mark.parametrize(
    ("requests", "refused"),
    [
        ({"cpu": "4", "memory": "16Gi"}, False),
        ({"cpu": "4001m"}, True),
        ({"memory": "17Gi"}, True),
    ],
)
def test_a_pod_without_chips_is_limited_to_the_size_of_a_head(admin: ApiServer, requests: Json, refused: bool) -> None:
    says = admission(admin, _head(admin, requests), "first")
    assert ("requests at most the CPU and memory of the team's largest head" in says) == refused
    assert bool(says) == refused


def test_containers_of_a_head_are_limited_together(admin: ApiServer) -> None:
    halves = _head(admin, {"cpu": "2500m"}, {"cpu": "2500m"})
    assert "requests at most the CPU and memory of the team's largest head" in admission(admin, halves, "first")


def _head(admin: ApiServer, *requests: Json) -> Json:
    """A pod without chips, with a container for each of `requests`."""
    pod = _trainer_on_the_pod_network(admin)
    container: Json = pod["containers"][0]
    containers = [
        {**container, "name": f"part-{index}", "resources": {"requests": each}} for index, each in enumerate(requests)
    ]
    return {**pod, "serviceAccountName": "default", "tolerations": [], "containers": containers}


def _beside_its_job() -> Any:
    return pods.head_place(parse(stack_values("local")).slices, "own", colocated=True)["affinity"]


def test_a_namespace_holds_no_disks_and_a_bounded_number_of_pods_and_jobs(admin: ApiServer) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Ti"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "disk"}, "spec": spec}
    refused = objection(admin, "/api/v1/namespaces/first/persistentvolumeclaims", claim)
    assert "exceeded quota: bounds, requested: persistentvolumeclaims=1" in refused
    counted = admin.request("GET", "/api/v1/namespaces/first/resourcequotas/bounds")["status"]["used"]
    assert counted.keys() == {"pods", "count/jobs.batch", "count/secrets", "persistentvolumeclaims"}


def test_a_member_creates_the_secret_of_a_job_and_reads_and_makes_no_other(admin: ApiServer, ada: ApiServer) -> None:
    ada.request("POST", JOBSETS.format("first"), jobset("first", "keyed", queue="first"))
    job = ada.request("GET", f"{JOBSETS.format('first')}/keyed")
    path = "/api/v1/namespaces/first/secrets"
    made = call_secret({"apiVersion": JOBSET_API_VERSION, "kind": "JobSet", **job}, "the key")
    ada.request("POST", path, made)
    of_account = {**made["metadata"], "annotations": {"kubernetes.io/service-account.name": SERVICE_ACCOUNT}}
    for refused in (
        {**made, "metadata": of_account, "type": "kubernetes.io/service-account-token"},
        {**made, "metadata": {"name": "other"}},
    ):
        assert "has the type Opaque and is owned by a JobSet" in objection(ada, path, refused)
    assert refusal(ada, "GET", f"{path}/{made['metadata']['name']}") == 403
    ada.request("DELETE", f"{JOBSETS.format('first')}/keyed")
    wait_until(lambda: admin.find(f"{path}/{made['metadata']['name']}") is None, lambda: str(made))


EVERYWHERE: Json = {"namespaceSelector": {}, "labelSelector": {}}
APART = "requiredDuringSchedulingIgnoredDuringExecution"
BESIDES = {"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}
OTHER_SLICES: Json = {"namespaceSelector": {}, "labelSelector": {"matchExpressions": [BESIDES]}}
WEIGHED = "preferredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("kind", "terms"),
    [
        ("podAntiAffinity", {APART: [{**EVERYWHERE, "topologyKey": "topology.kubernetes.io/zone"}]}),
        ("podAntiAffinity", {APART: [{**OTHER_SLICES, "topologyKey": "topology.kubernetes.io/zone"}]}),
        ("podAntiAffinity", {APART: [{**EVERYWHERE, "topologyKey": "kubernetes.io/hostname"}]}),
        ("podAntiAffinity", {APART: [{**OTHER_SLICES, "topologyKey": "cloud.google.com/gke-nodepool"}]}),
        ("podAntiAffinity", {APART: [{**OTHER_SLICES, "topologyKey": "kubernetes.io/hostname"}]}),
        ("podAffinity", {APART: [{"namespaces": ["second"], "topologyKey": "topology.kubernetes.io/zone"}]}),
        (
            "podAntiAffinity",
            {WEIGHED: [{"weight": 9, "podAffinityTerm": {**EVERYWHERE, "topologyKey": "kubernetes.io/hostname"}}]},
        ),
    ],
)
def test_a_pod_without_chips_keeps_no_pod_of_others_from_any_node(admin: ApiServer, kind: str, terms: Json) -> None:
    pod = _changed(_trainer_on_the_pod_network(admin), {"affinity": {kind: terms}}, {"resources": {}})
    assert "affinity to pods of other namespaces" in admission(admin, pod | {"serviceAccountName": "default"}, "first")


def test_a_pod_has_the_node_pool_of_its_chips_alone_and_affinity_within_its_namespace(admin: ApiServer) -> None:
    trainer = _trainer_on_the_pod_network(admin)
    alone = {APART: [{**OTHER_SLICES, "topologyKey": "cloud.google.com/gke-nodepool"}]}
    assert admission(admin, trainer | {"affinity": {"podAntiAffinity": alone}}, "first") == ""
    within = {APART: [{"labelSelector": {}, "topologyKey": "topology.kubernetes.io/zone", "namespaces": ["first"]}]}
    assert admission(admin, trainer | {"affinity": {"podAntiAffinity": within}}, "first") == ""


LONG = {"terminationGracePeriodSeconds": 31_536_000}


@pytest.mark.parametrize(
    ("change", "says"),
    [(LONG, "a pod ends within 3600 seconds"), ({"priorityClassName": "system-node-critical"}, "no-pod-priority")],
)
def test_a_pod_that_would_hold_its_chips_long_or_push_others_off_their_hosts_is_refused(
    admin: ApiServer, change: Json, says: str
) -> None:
    assert says in admission(admin, _trainer_on_the_pod_network(admin) | change, "first")


@pytest.mark.parametrize(
    ("annotations", "of_pods", "says"),
    [
        ({EXCLUSIVE: "topology.kubernetes.io/zone"}, {}, "node pools or hosts alone"),
        ({}, LONG, "end within 3600 seconds"),
        ({}, {"priorityClassName": "system-cluster-critical"}, "pods of a job name no priorityClassName"),
    ],
    ids=["a zone alone", "a long end", "a priority of its pods"],
)
def test_a_job_that_would_have_what_the_queue_does_not_give_is_refused(
    ada: ApiServer, annotations: Json, of_pods: Json, says: str
) -> None:
    asks = jobset("first", "asks", queue="first")
    asks["metadata"]["annotations"] = annotations
    (job,) = asks["spec"]["replicatedJobs"]
    job["template"]["spec"]["template"]["spec"] |= of_pods
    assert says in objection(ada, JOBSETS.format("first"), asks)


@pytest.mark.parametrize(
    ("heads", "with_slice", "refused"),
    [
        ([], True, False),
        ([{}], True, False),
        ([{}], False, True),
        ([{}, {}], True, True),
        ([{"replicas": 50}], True, True),
        ([{"parallelism": 50}], True, True),
    ],
)
def test_a_job_has_one_pod_without_chips_at_most_beside_those_with_them(
    ada: ApiServer, heads: Sequence[Mapping[str, int]], with_slice: bool, refused: bool
) -> None:
    job = jobset("first", "headed", queue="first")
    (hosts,) = job["spec"]["replicatedJobs"]
    parts = [hosts] if with_slice else []
    for index, many in enumerate(heads):
        head = deepcopy(hosts) | {"name": f"head-{index}", "replicas": many.get("replicas", 1)}
        head["template"]["spec"]["parallelism"] = many.get("parallelism", 1)
        head["template"]["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "90"}}
        parts.append(head)
    job["spec"]["replicatedJobs"] = parts
    says = objection(ada, JOBSETS.format("first"), job)
    assert ("every pod of a job but one, its head, holds google.com/tpu" in says) == refused
    assert bool(says) == refused


def test_each_namespace_has_the_policy_that_was_rendered(stack: Chain) -> None:
    live = {item["metadata"]["namespace"]: item["spec"] for item in stack.objects("networkpolicies")}
    assert live == {team: access.network_policy(team, Network(), monitored=True)["spec"] for team in TEAMS}


def _trainer(admin: ApiServer) -> Json:
    """The pod of the stack's own job, which uses the network of its host."""
    (job,) = admin.request("GET", f"{JOBSETS.format('lab')}/{HELD}")["spec"]["replicatedJobs"]
    return job["template"]["spec"]["template"]["spec"]


def _trainer_on_the_pod_network(admin: ApiServer) -> Json:
    return {key: value for key, value in _trainer(admin).items() if key not in ("hostNetwork", "dnsPolicy")}
