"""Checks of JobSet and Kueue that somebody else installed. The stack changes nothing of them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from infra.cluster.kubernetes import Json
from infra.existing.needs import Needs
from infra.stack.manifests import Object, selects
from infra.stack.names import JOBSET_API_VERSION, JOBSET_NAMESPACE, KUEUE_API_VERSION, KUEUE_NAMESPACE
from infra.stack.settings.errors import FieldError
from infra.stack.settings.schema import Controller

MIN_VERSIONS = {"jobset": (0, 11), "kueue": (0, 18)}
"""Oldest minor versions that the project's tests run. Older ones drop fields of the stack's JobSets."""
SERVED = {"jobset": JOBSET_API_VERSION, "kueue": KUEUE_API_VERSION}
"""API version of the stack's objects, by controller."""
NAMESPACES = {"jobset": JOBSET_NAMESPACE, "kueue": KUEUE_NAMESPACE}
"""Namespace in which the stack installs each controller."""
REQUESTED = ("cpu", "memory")
"""Resources besides chips that the stack's pods request."""
_FRAMEWORK = "jobset.x-k8s.io/jobset"
_TITLES = {"jobset": "JobSet", "kueue": "Kueue"}
_VERSION_LABEL = "app.kubernetes.io/version"
_PROVISIONING = "autoscaling.x-k8s.io"


@dataclass(frozen=True)
class FoundController:
    """A controller in the cluster."""

    version: str
    """Version such as 0.19.2; empty if nothing says it."""
    deployment: Json

    @property
    def config_map(self) -> str | None:
        """Return the API path of the ConfigMap with its configuration."""
        volumes: list[Json] = self.deployment["spec"]["template"]["spec"].get("volumes") or []
        names = [volume["configMap"]["name"] for volume in volumes if "configMap" in volume]
        namespace = self.deployment["metadata"]["namespace"]
        return f"/api/v1/namespaces/{namespace}/configmaps/{names[0]}" if names else None


def controller(name: str, deployments: Iterable[Json]) -> FoundController | None:
    """Return the controller whose image has this name."""
    for deployment in deployments:
        for container in deployment["spec"]["template"]["spec"]["containers"]:
            image = container["image"].partition("@")[0].rpartition("/")[2]
            if image.partition(":")[0] in (name, f"{name}-controller"):
                label = deployment["metadata"].get("labels", {}).get(_VERSION_LABEL, "")
                known = re.search(r"\d+\.\d+\.\d+", f"{image.partition(':')[2]} {label}")
                return FoundController(known[0] if known else "", deployment)
    return None


def controller_errors(
    name: str, how: Controller, found: FoundController | None, served: Sequence[str]
) -> Iterator[FieldError]:
    """Yield why the controller cannot be taken as found, or be installed. `served` are the API versions of the
    cluster.

    In the namespace of its chart it may be the one that the stack installed: `infra.existing.claims` knows."""
    path, title = f"cluster.existing.{name}", _TITLES[name]
    if how == "install":
        if found is not None and found.deployment["metadata"]["namespace"] != NAMESPACES[name]:
            yield FieldError(path, f"found, since the cluster has {title}", "install", f"write {path}: found")
        return
    if found is None:
        yield FieldError(path, f"{title} in the cluster", "none", f"write {path}: install, or ask its owner")
        return
    least = ".".join(map(str, MIN_VERSIONS[name]))
    if found.version and tuple(map(int, found.version.split(".")[:2])) < MIN_VERSIONS[name]:
        fix = "ask its owner to upgrade it, one minor version at a time"
        yield FieldError(path, f"{title} {least} or newer", found.version, fix)
    elif SERVED[name] not in served:
        fix = f"ask its owner for {title} {least} or newer"
        yield FieldError(path, f"{title} that serves {SERVED[name]}", found.version or "another one", fix)


def counted(config: Object) -> tuple[str, ...]:
    """Return the resources besides chips that Kueue counts for the stack's pods."""
    prefixes = tuple(config.get("resources", {}).get("excludeResourcePrefixes") or ())
    return tuple(name for name in REQUESTED if not name.startswith(prefixes))


def configuration_errors(config: Object, needs: Needs, served: Sequence[str]) -> Iterator[FieldError]:
    """Yield what the stack needs of Kueue's configuration and cannot change."""
    path, ask = "cluster.existing.kueue", "ask its owner to change its configuration"
    frameworks = config.get("integrations", {}).get("frameworks")
    if frameworks is not None and _FRAMEWORK not in frameworks:
        yield FieldError(path, f"Kueue with the integration {_FRAMEWORK}", ", ".join(frameworks), ask)
    selector = config.get("managedJobsNamespaceSelector")
    for namespace, labels in needs.namespaces.items():
        if selector is not None and not selects(selector, labels):
            expected = f"a managedJobsNamespaceSelector that selects namespace {namespace}, with {_text(labels)}"
            yield FieldError(path, expected, str(selector), ask)
    fair = config.get("fairSharing")
    is_fair = fair is not None and fair.get("enable", True)
    if is_fair != needs.fair_sharing:
        fix = f"write scheduling.fair_sharing: {str(is_fair).lower()}"
        yield FieldError("scheduling.fair_sharing", f"{str(is_fair).lower()}, as in Kueue", "its opposite", fix)
    gates = config.get("featureGates") or {}
    if needs.placement == "topology-aware" and gates.get("TopologyAwareScheduling") is False:
        fix = "write exclusive-topology"
        yield FieldError("scheduling.placement", "a Kueue with topology-aware scheduling", "one without", fix)
    if needs.queued and not any(version.startswith(f"{_PROVISIONING}/") for version in served):
        fix = "create a node pool with --enable-queued-provisioning, and ask its owner to restart Kueue"
        yield FieldError(path, "a cluster with ProvisioningRequests, for queued capacity", "none", fix)


def configuration_doubts(config: Object, version: str) -> Iterator[str]:
    """Yield what makes jobs less safe with this Kueue, but does not prevent them."""
    waits = config.get("waitForPodsReady")
    by_default = tuple(map(int, version.split(".")[:2])) >= (0, 19) if version else False
    if (waits is None and not by_default) or (waits or {}).get("enable") is False:
        yield "Kueue does not wait for pods (waitForPodsReady), so a job whose pods do not start keeps its chips"


def _text(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in labels.items())
