"""Checks the versions, controllers, clocks and names of a cluster."""

import re
import shutil
import socket
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from cli.doctor.checks import Findings, NotAsked, Scope, failed, judge, ok, skipped
from infra.stack.controllers import JOBSET, KUEUE
from infra.stack.manifests import Object, condition, is_true
from infra.stack.names import JOBSET_NAMESPACE, KUEUE_NAMESPACE, NODES

_KUBELET_MINORS = 3
"""Number of minor versions that a node may be older than the API server. It may never be newer
(https://kubernetes.io/releases/version-skew-policy/)."""
_VERSION_LABEL = "app.kubernetes.io/version"
_TAG = re.compile(r":v?(\d[\w.-]*)(@|$)")
_PROGRAMS = {
    "pulumi": "https://www.pulumi.com/docs/iac/download-install/",
    "gcloud": "https://cloud.google.com/sdk/docs/install",
    "gke-gcloud-auth-plugin": "gcloud components install gke-gcloud-auth-plugin",
    "kubectl": "gcloud components install kubectl",
}
"""Where to get each program."""
_HERE_SECONDS = 10.0
"""Tokens and signatures tolerate some minutes. A synchronised clock is off by far less."""
_NODE_SECONDS = 60.0
"""Nodes renew their lease every 10 seconds."""
_DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


def node_versions(scope: Scope) -> Findings:
    """Check that no node is newer or much older than the API server."""
    server = scope.api.request("GET", "/version")["gitVersion"]
    nodes = scope.listed(NODES)
    joined = {node["metadata"]["name"]: node.get("status", {}).get("nodeInfo") for node in nodes}
    kubelets = {name: info["kubeletVersion"] for name, info in joined.items() if info}
    apart = [name for name in kubelets if not 0 <= _minor(server) - _minor(kubelets[name]) <= _KUBELET_MINORS]
    if apart:
        such = f"{apart[0]} with {kubelets[apart[0]]}"
        said = f"the API server is {server}; {len(apart)} nodes do not match it, such as {such}"
        fix = f"let GKE upgrade them to at most {_KUBELET_MINORS} minor versions below the API server"
        yield failed("nodes", said, fix)
    else:
        yield ok("nodes", f"the API server is {server}; {', '.join(sorted(set(kubelets.values()))) or 'no nodes'}")


def operators(scope: Scope) -> Findings:
    """Check that JobSet and Kueue have the versions that this checkout declares."""
    wanted = {JOBSET_NAMESPACE: ("JobSet", JOBSET.version), KUEUE_NAMESPACE: ("Kueue", KUEUE.version)}
    existing = scope.settings.cluster.existing if scope.settings else None
    if existing is not None:
        hows = {"JobSet": existing.jobset, "Kueue": existing.kueue}
        # Every update checks those that others installed.
        wanted = {namespace: each for namespace, each in wanted.items() if hows[each[0]] == "install"}
    for namespace, (name, version) in wanted.items():
        found = {
            deployment["metadata"].get("labels", {}).get(_VERSION_LABEL, "unknown").removeprefix("v")
            for deployment in scope.listed(_DEPLOYMENTS.format(namespace))
        }
        if found == {version}:
            yield ok(name, version)
        else:
            said = f"this checkout declares {version}, the cluster has {', '.join(sorted(found)) or 'none'}"
            fix = f"`{scope.update()}`, one minor version at a time: docs/how-to/operations.md"
            yield failed(name, said, fix)


def controllers(scope: Scope) -> Findings:
    """Check that JobSet and Kueue are running; of a foreign cluster, also which versions they are."""
    foreign = scope.up.foreign
    for name, namespace in (("JobSet", JOBSET_NAMESPACE), ("Kueue", KUEUE_NAMESPACE)):
        found = scope.listed(_DEPLOYMENTS.format(namespace))
        if foreign and not found:
            yield skipped(name, f"namespace {namespace} has no Deployment, so its version is not known")
        for deployment in found:
            available = condition(deployment, "Available")
            passes = available.get("status") == "True"
            said = "available" if passes else available.get("message", "not available")
            said = f"{_version(deployment)}, {said}" if foreign else said
            fix = f"kubectl describe pods -n {namespace}"
            yield judge(deployment["metadata"]["name"], said, passes=passes, fix=fix)


def _version(deployment: Object) -> str:
    containers = deployment["spec"].get("template", {}).get("spec", {}).get("containers", [])
    tags = [found[1] for each in containers if (found := _TAG.search(each.get("image", "")))]
    label = deployment["metadata"].get("labels", {}).get(_VERSION_LABEL, "").removeprefix("v")
    return f"version {(label or (tags or ['unknown'])[0])}"


def programs(scope: Scope) -> Findings:
    """Check that the programs that commands and Pulumi need are installed."""
    if scope.sandbox:
        yield skipped("programs", "the sandbox has its own programs")
        return
    for name, source in _PROGRAMS.items():
        if shutil.which(name) is None:
            yield failed(name, "not on PATH", source)
        else:
            yield ok(name, "installed")


def _minor(version: str) -> int:
    found = re.match(r"v?\d+\.(\d+)", version)
    return int(found[1]) if found else 0


def clock(scope: Scope) -> Findings:
    """Check that this machine's clock agrees with that of the API server."""
    ahead = (datetime.now(UTC) - _now(scope)).total_seconds()
    found = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the API server"
    yield judge("this machine", found, passes=abs(ahead) <= _HERE_SECONDS, fix="sudo timedatectl set-ntp true")


def node_clocks(scope: Scope) -> Findings:
    """Check that the clocks of ready nodes agree with that of the API server, using their leases."""
    now = _now(scope)
    ready = {node["metadata"]["name"] for node in scope.listed(NODES) if is_true(node, "Ready")}
    renewed = {
        lease["metadata"]["name"]: datetime.fromisoformat(lease["spec"]["renewTime"])
        for lease in scope.listed(_LEASES)
        if lease["metadata"]["name"] in ready and lease["spec"].get("renewTime")
    }
    off = {name: (now - then).total_seconds() for name, then in renewed.items()}
    wrong = {name: seconds for name, seconds in off.items() if abs(seconds) > _NODE_SECONDS}
    if wrong:
        name, seconds = max(wrong.items(), key=lambda item: abs(item[1]))
        found = f"{len(wrong)} of {len(off)} are off; {name} renewed its lease {seconds:.0f} s before the server's time"
        yield failed("nodes", found, f"drain and recreate it; look at it first: kubectl describe node {name}")
    else:
        yield ok("nodes", f"all {len(off)} within {_NODE_SECONDS:.0f} s of the API server")


def _now(scope: Scope) -> datetime:
    answer = scope.api.open("/version", {})
    try:
        return parsedate_to_datetime(answer.headers["Date"])
    except (KeyError, ValueError):
        raise NotAsked("the API server's answer has no date") from None
    finally:
        answer.close()


def endpoint(scope: Scope) -> Findings:
    """Check that this machine can resolve the name of the cluster."""
    host = urlsplit(scope.up.api.url).hostname or ""
    try:
        found = socket.getaddrinfo(host, None)[0][4][0]
    except OSError as error:
        yield failed("endpoint", f"{host}: {error}", "check the resolver of this machine: /etc/resolv.conf")
    else:
        yield ok("endpoint", f"{host} is {found}")


def name_servers(scope: Scope) -> Findings:
    """Check that the cluster has a ready name server."""
    if scope.sandbox:
        yield skipped("cluster", "the sandbox writes the names of pods into their hosts files")
        return
    pods = scope.api.request("GET", "/api/v1/namespaces/kube-system/pods", query={"labelSelector": "k8s-app=kube-dns"})
    ready = [pod for pod in pods["items"] if is_true(pod, "Ready")]
    if ready:
        yield ok("cluster", f"{len(ready)} of {len(pods['items'])} name servers are ready")
    else:
        yield failed("cluster", "no name server is ready", "kubectl describe pods -n kube-system -l k8s-app=kube-dns")
