"""What a stack needs of a subnet, a cluster, JobSet and Kueue that exist already, and the errors of what does not fit.

The descriptions of cluster and subnet are those of the provider's functions `getCluster` and `getSubnetwork`: every
block is a list. The stack changes nothing of controllers that somebody else installed.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from infra.cluster.kubernetes import Json
from infra.stack.manifests import Object, selects
from infra.stack.names import (
    JOBSET_API_VERSION,
    JOBSET_NAMESPACE,
    KUEUE_API_VERSION,
    KUEUE_NAMESPACE,
    MANAGED,
    NAMESPACE_LABEL,
)
from infra.stack.pods import node_labels
from infra.stack.settings import schema
from infra.stack.settings.errors import FieldError
from infra.stack.settings.schema import Controller, ExistingNetwork
from infra.stack.settings.stack import Settings


@dataclass(frozen=True)
class PoolsNeeded:
    """Node pools of a slice group that exist already."""

    count: int
    hosts: int
    labels: Mapping[str, str]
    """Labels of the nodes, including the one that names the group."""


@dataclass(frozen=True)
class Needs:
    """Requirements of a stack on an existing cluster."""

    project: str
    cluster: schema.ExistingCluster
    pools: Mapping[str, PoolsNeeded]
    """Slice groups whose node pools exist already."""
    namespaces: Mapping[str, Mapping[str, str]]
    """Labels of each team's namespace."""
    placement: schema.Placement
    fair_sharing: bool
    queued: bool
    """Whether Kueue requests chips from GKE."""
    mounts: bool
    """Whether pods mount a bucket as a folder."""
    monitored: bool
    """Whether the stack declares objects for Managed Prometheus."""
    secrets: bool
    groups: bool
    """Whether teams have Google groups as members."""

    @classmethod
    def of(cls, settings: Settings, cluster: schema.ExistingCluster) -> Self:
        """Return the requirements of a stack file."""
        return cls(
            project=settings.cloud.project,
            cluster=cluster,
            pools={
                name: PoolsNeeded(group.count, group.shape.hosts, node_labels(name, group))
                for name, group in settings.slices.items()
                if group.existing
            },
            namespaces={
                team.namespace: {**MANAGED, NAMESPACE_LABEL: team.namespace} for team in settings.teams.values()
            },
            placement=settings.scheduling.placement,
            fair_sharing=settings.scheduling.fair_sharing,
            queued=any(group.capacity.queued for group in settings.slices.values()),
            mounts=settings.mounted_bucket is not None,
            monitored=settings.monitoring.enabled,
            secrets=bool(settings.secrets),
            groups=any(team.members.groups for team in settings.teams.values()),
        )


_MIN_MINOR_VERSION = 30
"""First minor version of Kubernetes that serves ValidatingAdmissionPolicies
(https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/)."""
_DNS, _ENDPOINTS = "dnsEndpointConfigs", "controlPlaneEndpointsConfigs"
_CLUSTER = "cluster.existing"


def first(found: Json, *blocks: str) -> Mapping[str, Any]:
    """Return the block of a description at this path; empty if there is none."""
    at: Mapping[str, Any] = found
    for block in blocks:
        at = next(iter(at.get(block) or ()), {})
    return at


def dns_endpoint(found: Json) -> str | None:
    """Return the host name of the DNS endpoint, if people outside of Google Cloud may use it."""
    block = first(found, _ENDPOINTS, _DNS)
    return block.get("endpoint") if block.get("allowExternalTraffic") else None


def cluster_errors(found: Json, needs: Needs) -> Iterator[FieldError]:
    """Yield what the stack needs of the cluster and the cluster does not have, each with the command that adds it."""
    update = f"gcloud container clusters update {needs.cluster.name} --location={needs.cluster.location}"
    update += f" --project={needs.project}"
    if found.get("enableAutopilot"):
        expected, fix = "a Standard cluster, since Autopilot has no node pools", "name another cluster, or remove it"
        yield FieldError(_CLUSTER, expected, "Autopilot", fix)
        return
    version = str(found.get("masterVersion", ""))
    minor = re.match(r"1\.(\d+)", version)
    if minor is None or int(minor[1]) < _MIN_MINOR_VERSION:
        expected = f"Kubernetes 1.{_MIN_MINOR_VERSION} or newer, for its admission policies"
        yield FieldError(_CLUSTER, expected, version or "an unknown version", f"upgrade it: {update} --master")
    if dns_endpoint(found) is None:
        yield FieldError(_CLUSTER, "a DNS endpoint", "none", f"add it: {update} --enable-dns-access")
    pool = f"{needs.project}.svc.id.goog"
    if (got := first(found, "workloadIdentityConfigs").get("workloadPool")) != pool:
        expected = f"workload identity with the pool {pool}, by which pods get their rights"
        yield FieldError(_CLUSTER, expected, got or "none", f"add it: {update} --workload-pool={pool}")
    yield from _wanted(found, needs, update)


def _wanted(found: Json, needs: Needs, update: str) -> Iterator[FieldError]:
    if needs.mounts and not first(found, "addonsConfigs", "gcsFuseCsiDriverConfigs").get("enabled"):
        fix = f"add it: {update} --update-addons=GcsFuseCsiDriver=ENABLED, or write datasets.mount: false"
        yield FieldError("datasets.mount", "a cluster with the driver of Cloud Storage FUSE", "none", fix)
    if needs.monitored and not first(found, "monitoringConfigs", "managedPrometheuses").get("enabled"):
        fix = f"add it: {update} --enable-managed-prometheus, or write monitoring.enabled: false"
        yield FieldError("monitoring.enabled", "a cluster with Managed Prometheus", "none", fix)
    if needs.groups and not first(found, "authenticatorGroupsConfigs").get("securityGroup"):
        fix = f"set it: {update} --security-group=gke-security-groups@DOMAIN, or name users"
        yield FieldError("teams", "a cluster with a security group, since teams have groups as members", "none", fix)
    if needs.secrets and first(found, "databaseEncryptions").get("state") in (None, "DECRYPTED"):
        fix = f"encrypt them: {update} --database-encryption-key=KEY"
        yield FieldError("secrets", "a cluster that encrypts its Secrets with a Cloud KMS key", "none", fix)


def cluster_doubts(found: Json) -> Iterator[str]:
    """Yield what makes the stack weaker in this cluster, but does not prevent it."""
    policies = found.get("datapathProvider") == "ADVANCED_DATAPATH" or first(found, "networkPolicies").get("enabled")
    if not policies:
        yield "the cluster enforces no NetworkPolicies, so pods of other namespaces can reach the pods of teams"


def subnet_errors(found: Json, wanted: ExistingNetwork) -> Iterator[FieldError]:
    """Yield what the stack needs of an existing subnet and the subnet does not have."""
    path, ranges = "network.existing", range_names(found)
    if str(found.get("network", "")).rpartition("/")[2] != wanted.network:
        yield FieldError(f"{path}.network", "the network of the subnet", repr(wanted.network), "correct it")
    for setting, name in (("pods", wanted.pods), ("services", wanted.services)):
        if name not in ranges:
            expected = f"a secondary range of subnet {wanted.subnet}: {', '.join(sorted(ranges)) or '(none)'}"
            fix = f"add it: gcloud compute networks subnets update {wanted.subnet} --add-secondary-ranges={name}=RANGE"
            yield FieldError(f"{path}.{setting}", expected, repr(name), fix)
    if not found.get("privateIpGoogleAccess"):
        fix = f"gcloud compute networks subnets update {wanted.subnet} --enable-private-ip-google-access"
        yield FieldError(
            f"{path}.subnet", "a subnet with Private Google Access, for nodes without addresses", "none", fix
        )


def range_names(found: Json) -> dict[str, str]:
    """Return the secondary ranges of a subnet by name."""
    return {each["rangeName"]: each["ipCidrRange"] for each in found.get("secondaryIpRanges") or ()}


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
            shown = ", ".join(f"{key}={value}" for key, value in labels.items())
            expected = f"a managedJobsNamespaceSelector that selects namespace {namespace}, with {shown}"
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
