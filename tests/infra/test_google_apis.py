"""What the stacks declare of Google Cloud has the names, types and words of Google's own documents of its APIs."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
import yaml

from sandbox.builds import API_DOCUMENTS, prepare_copy
from tests.infra.permissions import ROLES
from tests.infra.recording import ROOT

_OTHER_THAN_API = frozenset({"project", "region", "deletionProtection"})
"""Arguments of the address or of the provider itself, whatever the type."""
_TYPES: Mapping[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
}


@dataclass(frozen=True)
class Body:
    """What a resource is sent as."""

    api: str
    schema: str
    renamed: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    """Arguments that the API knows by another path; None: it does not get them."""


BODIES = {
    "gcp:artifactregistry/repository:Repository": Body(
        "artifactregistry",
        "Repository",
        {"location": None, "repositoryId": "name", "cleanupPolicies[]": "cleanupPolicies.ID"},
    ),
    "gcp:billing/budget:Budget": Body(
        "billingbudgets",
        "GoogleCloudBillingBudgetsV1Budget",
        {"billingAccount": None, "allUpdatesRule": "notificationsRule"},
    ),
    "gcp:compute/firewall:Firewall": Body(
        "compute", "Firewall", {"allows[]": "allowed[]", "allows[].protocol": "allowed[].IPProtocol"}
    ),
    "gcp:compute/network:Network": Body("compute", "Network"),
    "gcp:compute/resourcePolicy:ResourcePolicy": Body("compute", "ResourcePolicy"),
    "gcp:compute/router:Router": Body("compute", "Router"),
    "gcp:compute/routerNat:RouterNat": Body("compute", "RouterNat", {"router": None}),
    "gcp:compute/subnetwork:Subnetwork": Body("compute", "Subnetwork"),
    "gcp:container/cluster:Cluster": Body(
        "container",
        "Cluster",
        {
            "datapathProvider": "networkConfig.datapathProvider",
            "disableL4LbFirewallReconciliation": "networkConfig.disableL4LbFirewallReconciliation",
            "enableMultiNetworking": "networkConfig.enableMultiNetworking",
            "loggingConfig": "loggingConfig.componentConfig",
            "maintenancePolicy": "maintenancePolicy.window",
            "maintenancePolicy.recurringWindow.endTime": "maintenancePolicy.window.recurringWindow.window.endTime",
            "maintenancePolicy.recurringWindow.startTime": "maintenancePolicy.window.recurringWindow.window.startTime",
            "monitoringConfig.enableComponents[]": "monitoringConfig.componentConfig.enableComponents[]",
            "monitoringConfig.managedPrometheus": "monitoringConfig.managedPrometheusConfig",
            "networkingMode": None,
            "nodeLocations[]": "locations[]",
            "removeDefaultNodePool": None,
        },
    ),
    "gcp:container/nodePool:NodePool": Body(
        "container",
        "NodePool",
        {
            "cluster": None,
            "location": None,
            "maintenancePolicies[].exclusionUntilEndOfSupports[]": "maintenancePolicy.exclusionUntilEndOfSupport",
            "maxPodsPerNode": "maxPodsConstraint.maxPodsPerNode",
            "nodeConfig": "config",
            "nodeCount": "initialNodeCount",
            "nodeLocations[]": "locations[]",
        },
    ),
    "gcp:monitoring/notificationChannel:NotificationChannel": Body("monitoring", "NotificationChannel"),
    "gcp:serviceaccount/account:Account": Body(
        "iam", "CreateServiceAccountRequest", {"displayName": "serviceAccount.displayName"}
    ),
    "gcp:storage/bucket:Bucket": Body(
        "storage",
        "Bucket",
        {
            "forceDestroy": None,
            "lifecycleRules[]": "lifecycle.rule[]",
            "publicAccessPrevention": "iamConfiguration.publicAccessPrevention",
            "uniformBucketLevelAccess": "iamConfiguration.uniformBucketLevelAccess.enabled",
        },
    ),
    "gcp:storage/managedFolder:ManagedFolder": Body("storage", "ManagedFolder", {"forceDestroy": None}),
}
GRANTS = frozenset(
    {
        "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember",
        "gcp:projects/iAMMember:IAMMember",
        "gcp:storage/bucketIAMMember:BucketIAMMember",
        "gcp:storage/managedFolderIamMember:ManagedFolderIamMember",
    }
)
SERVICE = "gcp:projects/service:Service"


@cache
def schemas(api: str) -> Mapping[str, Any]:
    return json.loads(prepare_copy(API_DOCUMENTS[api], lambda _: None).read_text())["schemas"]


@cache
def declared() -> list[tuple[str, str, Any]]:
    """Type, path and value of each argument in the golden files; elements of lists have the path `name[]`."""
    found: list[tuple[str, str, Any]] = []
    for path in sorted((ROOT / "tests" / "golden").rglob("*.yaml")):
        for named, fields in yaml.load(path.read_text(), yaml.CSafeLoader).items():
            for key, value in fields.items() if named.startswith("gcp:") else ():
                if key.startswith("inputs"):
                    plain = re.sub(r'\["[^"]*"\]', ".any", key)
                    where = re.sub(r"\[(\d+|name=[^\]]*)\]", "[]", plain).removeprefix("inputs").removeprefix(".")
                    found += [(named.split()[0], *leaf) for leaf in leaves(value, where)]
    return found


def leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    match value:
        case dict():
            for name, each in value.items():
                yield from leaves(each, f"{path}.{name}".removeprefix("."))
        case list():
            for each in value:
                yield from leaves(each, f"{path}[]")
        case _:
            yield path, value


def fault(body: Body, path: str, value: Any) -> str | None:
    """What is wrong with an argument; None: nothing."""
    sent = in_api(body, path)
    if sent is None:
        return None
    schema = at(schemas(body.api), schemas(body.api)[body.schema], sent)
    if schema is None:
        return f"{path}: {body.schema} has no {sent}"
    kinds = _TYPES.get(schema.get("type", ""), ())
    # Numbers of 64 bits are texts in JSON, and some arguments of the provider are such texts.
    if schema.get("format") in ("int64", "uint64"):
        kinds = (int, str) if str(value).isdigit() else (int,)
    if type(value) not in kinds:
        return f"{path}: expected {schema.get('type')}, got {value!r}"
    # The provider leaves an empty text out.
    if value and value not in schema.get("enum", [value]):
        return f"{path}: expected one of {', '.join(schema['enum'])}, got {value}"
    return None


def in_api(body: Body, path: str) -> str | None:
    """The path as the API knows it."""
    if path in _OTHER_THAN_API:
        return None
    known = [name for name in body.renamed if re.match(rf"{re.escape(name)}(\.|\[|$)", path)]
    if not known:
        return path
    longest = max(known, key=len)
    renamed = body.renamed[longest]
    return None if renamed is None else renamed + path.removeprefix(longest)


def at(every: Mapping[str, Any], schema: Any, path: str) -> Any:
    """Return the schema at a path, or None."""
    for name in re.findall(r"\[\]|[^.\[\]]+", path):
        if name == "[]":
            schema = schema.get("items")
        elif name in schema.get("properties", {}):
            schema = schema["properties"][name]
        else:
            schema = schema.get("additionalProperties")
        if schema is None:
            return None
        schema = every[schema["$ref"]] if "$ref" in schema else schema
    return schema


def test_every_declared_type_is_compared() -> None:
    assert {kind for kind, _, _ in declared()} == {*BODIES, *GRANTS, SERVICE}


@pytest.mark.parametrize("kind", BODIES)
def test_the_api_has_every_declared_argument_with_its_type_and_words(kind: str) -> None:
    arguments = [(path, value) for found, path, value in declared() if found == kind]
    assert [found for path, value in arguments if (found := fault(BODIES[kind], path, value))] == []


def test_every_granted_role_is_one_of_google() -> None:
    assert {value for kind, path, value in declared() if kind in GRANTS and path == "role"} <= ROLES
