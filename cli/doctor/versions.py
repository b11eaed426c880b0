"""Versions that must fit each other."""

import re
import shutil

from cli.doctor.check import Findings, Scope, fault, not_asked, ok
from infra.names import JOBSET_NAMESPACE, KUEUE_NAMESPACE, NODES

_KUBELET_MINORS = 3
"""A node may be so many minors older than the API server, and never newer
(https://kubernetes.io/releases/version-skew-policy/)."""
_VERSION_LABEL = "app.kubernetes.io/version"
_PROGRAMS = {
    "pulumi": "https://www.pulumi.com/docs/iac/download-install/",
    "gcloud": "https://cloud.google.com/sdk/docs/install",
    "gke-gcloud-auth-plugin": "gcloud components install gke-gcloud-auth-plugin",
    "kubectl": "gcloud components install kubectl",
}
"""By program, where it comes from."""


def nodes(scope: Scope) -> Findings:
    """Whether the nodes are no newer than the API server, nor much older."""
    server = scope.api.request("GET", "/version")["gitVersion"]
    kubelets = {node["metadata"]["name"]: _kubelet(node) for node in scope.listed(NODES)}
    apart = {
        name: version
        for name, version in kubelets.items()
        if not 0 <= _minor(server) - _minor(version) <= _KUBELET_MINORS
    }
    if apart:
        name, version = next(iter(apart.items()))
        said = f"the API server is {server}, and of {len(apart)} nodes the first, {name}, is {version}"
        yield fault(
            "nodes", said, f"let GKE upgrade them: within {_KUBELET_MINORS} minors of the API server, none newer"
        )
    else:
        yield ok("nodes", f"the API server is {server}; {', '.join(sorted(set(kubelets.values()))) or 'no nodes'}")


def operators(scope: Scope) -> Findings:
    """Whether JobSet and Kueue are those that this checkout declares."""
    # Imports Pulumi's SDK.
    from infra.operators import JOBSET, KUEUE

    wanted = {JOBSET_NAMESPACE: ("JobSet", JOBSET.version), KUEUE_NAMESPACE: ("Kueue", KUEUE.version)}
    for namespace, (name, version) in wanted.items():
        found = {
            deployment["metadata"].get("labels", {}).get(_VERSION_LABEL, "unknown").removeprefix("v")
            for deployment in scope.listed(f"/apis/apps/v1/namespaces/{namespace}/deployments")
        }
        if found == {version}:
            yield ok(name, version)
        else:
            said = f"this checkout declares {version}, the cluster has {', '.join(sorted(found)) or 'none'}"
            yield fault(name, said, f"`pulumi up --stack {scope.stack}`, one minor at a time: docs/operations.md")


def programs(scope: Scope) -> Findings:
    """Whether what commands and Pulumi start is installed."""
    if scope.sandbox:
        yield not_asked("programs", "the sandbox has its own")
        return
    for name, source in _PROGRAMS.items():
        if shutil.which(name) is None:
            yield fault(name, "not on PATH", source)
        else:
            yield ok(name, "installed")


def _kubelet(node: dict[str, dict[str, dict[str, str]]]) -> str:
    return node["status"]["nodeInfo"]["kubeletVersion"]


def _minor(version: str) -> int:
    found = re.match(r"v?\d+\.(\d+)", version)
    return int(found[1]) if found else 0
