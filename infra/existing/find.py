"""Asks Google Cloud and the cluster what exists already, before the stack changes anything.

Everything that does not fit is reported at once, like the errors of a stack file.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pulumi
import pulumi_gcp as gcp
from pulumi.output import UNKNOWN

from infra.cluster.kubernetes import UNREACHABLE, ApiServer, Json
from infra.existing import checks
from infra.existing.checks import Needs, PoolsNeeded
from infra.existing.claims import claim_record, claims
from infra.gke_cluster import SharedCluster
from infra.stack.manifests import configuration
from infra.stack.names import NODE_POOL_LABEL, NODES, OFFLINE, SLICE_GROUP_LABEL
from infra.stack.settings import schema
from infra.stack.settings.errors import FieldError, SettingsError
from infra.stack.settings.stack import Settings

_PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
_DEPLOYMENTS = "/apis/apps/v1/deployments"


@dataclass(frozen=True)
class Found:
    """What exists already."""

    ranges: schema.Network
    endpoint: pulumi.Input[str] | None = None
    """Host name of the cluster's DNS endpoint, unknown offline; `None` if only the network exists."""
    shared: SharedCluster | None = None
    """The cluster; `None` if only the network exists."""
    requirements: tuple[pulumi.Resource, ...] = ()
    """Records that precede every change."""
    unchecked: str | None = None
    """Section of the stack file that an offline preview cannot check; `None` if Google Cloud answered."""


class _OfflineError(Exception):
    """Raised when there is no Google Cloud to ask."""


def find(settings: Settings, provider: gcp.Provider) -> Found | None:
    """Return what exists already of what the stack file names; `None` if it names nothing.

    An offline preview assumes that it fits. Raise SettingsError with all errors if it does not fit the stack.
    """
    cluster, network = settings.cluster.existing, settings.network.existing
    try:
        if cluster is not None:
            return _find_cluster(settings, cluster, provider)
        return Found(_find_network(settings.cloud, network, provider)) if network is not None else None
    except _OfflineError:
        return Found(schema.Network(), unchecked="network.existing") if cluster is None else _assume(settings, cluster)


def _assume(settings: Settings, cluster: schema.ExistingCluster) -> Found:
    shared = SharedCluster(location=cluster.location, jobset=cluster.jobset, kueue=cluster.kueue)
    endpoint, record = pulumi.Output.from_input(cast(str, UNKNOWN)), claim_record(claims(settings), (), None)
    return Found(schema.Network(), endpoint, shared, (record,), "cluster.existing")


def _find_network(cloud: schema.Cloud, wanted: schema.ExistingNetwork, provider: gcp.Provider) -> schema.Network:
    place = {"name": wanted.subnet, "region": cloud.region, "project": wanted.project or cloud.project}
    found = _ask("gcp:compute/getSubnetwork:getSubnetwork", place, provider)
    if found is None or not found.get("ipCidrRange"):
        expected, fix = f"a subnet in {place['region']} of {place['project']}", "correct it, or create the subnet"
        raise SettingsError([FieldError("network.existing.subnet", expected, repr(wanted.subnet), fix)])
    if errors := list(checks.subnet_errors(found, wanted)):
        raise SettingsError(errors)
    ranges = checks.range_names(found)
    pods, services = ranges[wanted.pods], ranges[wanted.services]
    return schema.Network(nodes=found["ipCidrRange"], pods=pods, services=services, second_nodes=pods)


def _find_cluster(settings: Settings, wanted: schema.ExistingCluster, provider: gcp.Provider) -> Found:
    place = {"name": wanted.name, "location": wanted.location, "project": settings.cloud.project}
    found = _ask("gcp:container/getCluster:getCluster", place, provider)
    if found is None:
        expected, fix = f"a cluster in {wanted.location} of {settings.cloud.project}", "correct its name or location"
        raise SettingsError([FieldError("cluster.existing", expected, repr(wanted.name), fix)])
    needs = Needs.of(settings, wanted)
    errors = list(checks.cluster_errors(found, needs))
    endpoint = checks.dns_endpoint(found)
    inside = _Inside((), ())
    if endpoint is not None:
        try:
            inside = _look_inside(ApiServer.at(endpoint), needs)
        except UNREACHABLE as error:
            fix = "run this where the cluster can be reached, as a user who may read it"
            raise SettingsError(
                [*errors, FieldError("cluster.existing", "a reachable cluster", str(error), fix)]
            ) from None
    errors += inside.errors
    if errors or endpoint is None:
        raise SettingsError(errors)
    for doubt in (*checks.cluster_doubts(found), *inside.doubts):
        pulumi.log.warn(f"cluster {wanted.name}: {doubt}")
    pods, services = found["clusterIpv4Cidr"], found["servicesIpv4Cidr"]
    shared = SharedCluster(
        location=wanted.location,
        private_nodes=bool(checks.first(found, "privateClusterConfigs").get("enablePrivateNodes")),
        jobset=wanted.jobset,
        kueue=wanted.kueue,
        counted=inside.counted,
    )
    pools = [each["name"] for each in found.get("nodePools") or ()]
    record = claim_record(claims(settings), pools, endpoint)
    ranges = schema.Network(pods=pods, services=services, second_nodes=pods)
    return Found(ranges, endpoint, shared, (record,))


def _ask(token: str, place: dict[str, str], provider: gcp.Provider) -> Json | None:
    """Return what Google Cloud answers; `None` if there is no such thing. Raise _OfflineError offline."""
    try:
        return pulumi.runtime.invoke(token, place, pulumi.InvokeOptions(provider=provider)).value
    except Exception as error:  # The SDK raises a plain Exception for every error of the provider.
        if OFFLINE in str(error):
            raise _OfflineError from None
        if "not found" in str(error) or "notFound" in str(error):
            return None
        raise


@dataclass(frozen=True)
class _Inside:
    errors: Sequence[FieldError]
    doubts: Sequence[str]
    counted: tuple[str, ...] = ()


def _look_inside(server: ApiServer, needs: Needs) -> _Inside:
    groups = server.request("GET", "/apis")["groups"]
    served = [version["groupVersion"] for group in groups for version in group["versions"]]
    deployments = server.request("GET", _DEPLOYMENTS)["items"]
    jobset, kueue = (checks.controller(name, deployments) for name in ("jobset", "kueue"))
    errors = list(checks.controller_errors("jobset", needs.cluster.jobset, jobset, served))
    errors += checks.controller_errors("kueue", needs.cluster.kueue, kueue, served)
    errors += default_errors(server.request("GET", _PRIORITIES)["items"])
    for name, wanted in needs.pools.items():
        nodes = server.request("GET", NODES, query={"labelSelector": f"{SLICE_GROUP_LABEL}={name}"})["items"]
        errors += pool_errors(name, wanted, nodes, needs.cluster)
    if needs.cluster.kueue == "install" or kueue is None:
        return _Inside(errors, ())
    config = configuration(server.find(kueue.config_map) if kueue.config_map else None)
    errors += checks.configuration_errors(config, needs, served)
    doubts = list(checks.configuration_doubts(config, kueue.version))
    return _Inside(errors, doubts, checks.counted(config))


def default_errors(priorities: Sequence[Json]) -> Iterator[FieldError]:
    """Yield the error of a PriorityClass that every pod gets, because namespaces of teams accept no pods with one."""
    for each in priorities:
        if each.get("globalDefault"):
            expected, fix = "a cluster without a default PriorityClass", "ask its owner to make it no default"
            yield FieldError("cluster.existing", expected, each["metadata"]["name"], fix)


def pool_errors(
    name: str, wanted: PoolsNeeded, nodes: Sequence[Any], cluster: schema.ExistingCluster
) -> Iterator[FieldError]:
    """Yield why these nodes, which have the label of the group, are not its slices."""
    path = f"slices.{name}"
    pools: dict[str, list[dict[str, str]]] = {}
    for node in nodes:
        labels = node["metadata"]["labels"]
        pools.setdefault(labels.get(NODE_POOL_LABEL, "(none)"), []).append(labels)
    update = "gcloud container node-pools update POOL"
    if len(pools) != wanted.count:
        expected = f"{wanted.count} node pools whose nodes have the label {SLICE_GROUP_LABEL}={name}"
        fix = (
            f"{update} --cluster={cluster.name} --location={cluster.location} --node-labels={SLICE_GROUP_LABEL}={name}"
        )
        yield FieldError(f"{path}.count", expected, ", ".join(sorted(pools)) or "none", f"add the label: {fix}")
    for pool, found in sorted(pools.items()):
        pairs = [(labels, *label) for labels in found for label in wanted.labels.items()]
        wrong = {key: labels.get(key) for labels, key, value in pairs if labels.get(key) != value}
        if wrong:
            expected = ", ".join(f"{key}={wanted.labels[key]}" for key in wrong)
            yield FieldError(path, f"nodes with {expected}", f"{wrong} in node pool {pool}", "correct the slice group")
        elif len(found) > wanted.hosts:
            expected = f"node pools of {wanted.hosts} hosts, one slice each"
            yield FieldError(path, expected, f"{len(found)} in {pool}", "correct the slice group")
