"""Checks a cluster that no stack of this project deployed, with GET requests only."""

import re

from cli.doctor.capacity import check_active, check_slice, quota_by_flavor, slices_of
from cli.doctor.checks import Check, Findings, NotAsked, Scope, failed, judge, ok, skipped
from cli.observed.cluster import node_of
from cli.render import counted
from infra.cluster.kubernetes import FORBIDDEN, ApiError, Json, right
from infra.stack.manifests import Object, condition
from infra.stack.names import (
    ACCELERATOR_LABEL,
    EVENTS,
    FLAVORS,
    JOBS,
    JOBSET_API_VERSION,
    JOBSET_GROUP,
    JOBSET_NAMESPACE,
    JOBSETS,
    KUEUE_API_VERSION,
    KUEUE_GROUP,
    KUEUE_NAMESPACE,
    LOCAL_QUEUES,
    NODES,
    PODS,
    QUEUES,
    WORKLOADS,
    everywhere,
)

_VERSION_LABEL = "app.kubernetes.io/version"
_INSTALL = {
    "JobSet": "https://jobset.sigs.k8s.io/docs/installation",
    "Kueue": "https://kueue.sigs.k8s.io/docs/installation",
}
_GROUPS = {"JobSet": (JOBSET_GROUP, JOBSET_API_VERSION), "Kueue": (KUEUE_GROUP, KUEUE_API_VERSION)}
_NAMESPACES = {"JobSet": JOBSET_NAMESPACE, "Kueue": KUEUE_NAMESPACE}
_TAG = re.compile(r":v?(\d[\w.-]*)(@|$)")
_OF_JOBS = (JOBSETS, WORKLOADS, JOBS, PODS, EVENTS, LOCAL_QUEUES)
_OF_CLUSTER = (everywhere(WORKLOADS), QUEUES, FLAVORS, NODES)


def apis(scope: Scope) -> Findings:
    """Check that the cluster serves the APIs of JobSet and Kueue, and in which versions."""
    for name, (group, newest) in _GROUPS.items():
        found = scope.api.find(f"/apis/{group}")
        served = [each["groupVersion"].rpartition("/")[2] for each in (found or {}).get("versions", [])]
        if found is None:
            yield failed(name, f"the cluster does not serve the API group {group}", f"install it: {_INSTALL[name]}")
        elif name == "Kueue" and not scope.foreign.kueue:
            said = f"serves {', '.join(served) or 'no version'}, which this program does not read"
            yield failed(name, said, f"upgrade it: {_INSTALL[name]}")
        else:
            older = "" if newest.rpartition("/")[2] in served or not served else ", an older one"
            yield ok(name, f"serves {', '.join(served) or newest}{older}")


def controllers(scope: Scope) -> Findings:
    """Check that the controllers of JobSet and Kueue are ready, and which versions they are."""
    for name, namespace in _NAMESPACES.items():
        found = scope.listed(f"/apis/apps/v1/namespaces/{namespace}/deployments")
        if not found:
            yield skipped(name, f"namespace {namespace} has no Deployment, so its version is not known")
        for deployment in found:
            subject, available = deployment["metadata"]["name"], condition(deployment, "Available")
            said = f"{_version(deployment)}, {available.get('message', 'not available')}"
            fix = f"kubectl describe pods -n {namespace}"
            yield judge(subject, said, passes=available.get("status") == "True", fix=fix)


def _version(deployment: Object) -> str:
    """Return the version of a controller, by its label or the tag of its image."""
    containers = deployment.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])
    tags = [found[1] for each in containers if (found := _TAG.search(each.get("image", "")))]
    label = deployment["metadata"].get("labels", {}).get(_VERSION_LABEL, "").removeprefix("v")
    return f"version {(label or (tags or ['unknown'])[0])}"


def queues(scope: Scope) -> Findings:
    """Check that the ClusterQueues, and the LocalQueues of the namespace, admit jobs."""
    found = {each["metadata"]["name"]: each for each in _listed(scope, QUEUES)}
    yield from (_active(f"ClusterQueue {name}", "clusterqueue", each) for name, each in found.items())
    namespace = scope.foreign.namespace
    local = _listed(scope, LOCAL_QUEUES.format(namespace))
    for each in local:
        subject, name = f"LocalQueue {each['metadata']['name']}", each["spec"].get("clusterQueue", "")
        if name in found:
            yield _active(subject, f"localqueue -n {namespace}", each)
        else:
            yield failed(subject, f"its ClusterQueue {name!r} does not exist", "create it, or correct the LocalQueue")
    if not local:
        said = f"namespace {namespace} has no LocalQueue, so Kueue admits no job there"
        yield failed("LocalQueues", said, "create a LocalQueue, or pass another --namespace")


def _active(subject: str, words: str, found: Json) -> Check:
    stopped = found["spec"].get("stopPolicy", "None")
    if stopped != "None":
        return failed(subject, f"admits no job, because its stopPolicy is {stopped}", "remove stopPolicy to open it")
    return check_active(subject, found, f"kubectl describe {words}")


def flavors(scope: Scope) -> Findings:
    """Check that each flavor has nodes."""
    given = quota_by_flavor(_listed(scope, QUEUES))
    nodes = [(node["metadata"].get("labels", {}), node_of(node).chips) for node in _listed(scope, NODES)]
    for flavor in _listed(scope, FLAVORS):
        name, wanted = flavor["metadata"]["name"], flavor["spec"].get("nodeLabels", {})
        chips = [count for labels, count in nodes if wanted.items() <= labels.items()]
        labels = ", ".join(f"{key}={value}" for key, value in wanted.items())
        said = f"{counted(len(chips), 'node')} with {sum(chips)} chips" if chips else f"no node has its labels {labels}"
        fix = "create such nodes, unless an autoscaler does so for waiting pods, or correct nodeLabels"
        yield judge(f"flavor {name}", f"{said}; queues give out {given[name]} chips", passes=bool(chips), fix=fix)


def slices(scope: Scope) -> Findings:
    """Check that all hosts of TPU node pools are usable."""
    found = slices_of(_listed(scope, f"{NODES}?labelSelector={ACCELERATOR_LABEL}"))
    if not found:
        yield skipped("slices", "the cluster has no TPU node now")
    for name, nodes in sorted(found.items()):
        yield check_slice(f"slice {name}", nodes, {})


def rights(scope: Scope) -> Findings:
    """Check which objects this user may read."""
    namespace = scope.foreign.namespace
    for subject, paths in (("jobs", [path.format(namespace) for path in _OF_JOBS]), ("cluster", _OF_CLUSTER)):
        refused = [right(path) for path in paths if not _may_list(scope, path)]
        if refused:
            said = f"you may not {' or '.join(refused)}"
            yield failed(subject, said, "ask for these rights: commands leave out what they cannot read")
        else:
            yield ok(subject, f"may list all {len(paths)} kinds of objects that commands read")


def _may_list(scope: Scope, path: str) -> bool:
    try:
        scope.api.find(_served(scope, path), {"limit": "1"})
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        return False
    return True


def _listed(scope: Scope, path: str) -> list[Json]:
    """Return the objects of a collection, in the version of Kueue's API that the cluster serves."""
    if KUEUE_GROUP in path and not scope.foreign.kueue:
        raise NotAsked("the cluster has no Kueue whose API this program reads")
    # The API server leaves out a specification in which nothing is set.
    return [{"spec": {}, **each} for each in scope.listed(_served(scope, path))]


def _served(scope: Scope, path: str) -> str:
    return path.replace(KUEUE_API_VERSION, scope.foreign.kueue or KUEUE_API_VERSION)
