"""Checks of an existing cluster and an existing subnet, as Google Cloud describes them.

The descriptions are those of the provider's functions `getCluster` and `getSubnetwork`: every block is a list.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from infra.cluster.kubernetes import Json
from infra.existing.needs import Needs
from infra.stack.settings.errors import FieldError
from infra.stack.settings.schema import ExistingNetwork

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
    """Yield what is missing of features that the stack file asks for."""
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
