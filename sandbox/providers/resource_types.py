"""The table of Google Cloud resource types: their ids, what the cloud computes, and what a change does.

Data, not behaviour: three types do more than be remembered (`effects`). A type that is not listed
is remembered like any other, under a general id. What replaces, updates or does nothing follows
terraform-provider-google-beta 7.45, which the published plugin bridges.
"""

from dataclasses import dataclass, field
from typing import Any, cast

from sandbox.providers.plugin import Refusal
from sandbox.providers.values import Object

CLUSTER = "gcp:container/cluster:Cluster"
NODE_POOL = "gcp:container/nodePool:NodePool"
BUCKET = "gcp:storage/bucket:Bucket"
RESOURCE_POLICY = "gcp:compute/resourcePolicy:ResourcePolicy"

_COMPUTE = "https://www.googleapis.com/compute/v1/{id}"


@dataclass(frozen=True)
class ResourceType:
    """One row. Templates take the inputs' names, `project`, `region`, `location` and the site's facts."""

    id: str
    outputs: Object = field(default_factory=dict[str, Any])
    """What the cloud adds: templates; unknown in previews."""
    replaces: tuple[str, ...] = ("name", "project", "location", "region")
    """Paths that replace the resource, with all that lies under them."""
    blocks: tuple[str, ...] = ()
    """Paths that replace it only when the whole block comes or goes."""
    inert: tuple[str, ...] = ()
    """Paths whose change is accepted and does nothing: the update reads back the old value."""
    defaults: Object = field(default_factory=dict[str, Any])
    """What the plugin itself fills in."""
    name: str | None = "name"
    """The property that is named after the resource when the program does not name it."""


def row(resource_type: str) -> ResourceType:
    """The row of a type, or a general one."""
    general = ResourceType(f"projects/{{project}}/{resource_type.rpartition(':')[2]}s/{{name}}")
    return _ROWS.get(resource_type, general)


def filled(template: Any, facts: Object) -> Any:
    """`template` with `{names}` replaced.

    Raises:
        Refusal: a name has no value: a required field is not set.
    """
    if isinstance(template, dict):
        return {key: filled(item, facts) for key, item in cast(Object, template).items()}
    try:
        return str(template).format_map(facts)
    except KeyError as error:
        raise Refusal(f"{error.args[0]}: required field is not set") from None


def _iam_member(target: str, *keys: str) -> ResourceType:
    return ResourceType(
        f"{target}/{{role}}/{{member}}",
        {"etag": "BwXsandbox="},
        (*keys, "role", "member", "condition", "project"),
        name=None,
    )


_NODE_CONFIG_REPLACES = tuple(
    f"nodeConfig.{field}"
    for field in ["spot", "preemptible", "flexStart", "maxRunDuration", "reservationAffinity", "serviceAccount", "oauthScopes", "metadata", "minCpuPlatform", "guestAccelerators", "localSsdCount", "ephemeralStorageConfig", "ephemeralStorageLocalSsdConfig", "localNvmeSsdBlockConfig", "localSsdEncryptionMode", "secondaryBootDisks", "shieldedInstanceConfig", "hostMaintenancePolicy", "bootDiskKmsKey", "enableConfidentialStorage", "confidentialNodes.confidentialInstanceType", "advancedMachineFeatures.threadsPerCore", "advancedMachineFeatures.enableNestedVirtualization", "nodeGroup"]
)

_CLUSTER = ResourceType(
    "projects/{project}/locations/{location}/clusters/{name}",
    {
        "endpoint": "{address}",
        "controlPlaneEndpointsConfig": {"dnsEndpointConfig": {"endpoint": "{dns_endpoint}"}},
        "masterAuth": {"clusterCaCertificate": "{ca_certificate}"},
        "masterVersion": "{version}",
        "selfLink": "https://container.googleapis.com/v1/{id}",
        "servicesIpv4Cidr": "{service_cidr}",
        "location": "{location}",
        "project": "{project}",
    },
    tuple(
        ["name", "location", "project", "description", "network", "subnetwork", "networkingMode", "clusterIpv4Cidr", "ipAllocationPolicy.clusterSecondaryRangeName", "ipAllocationPolicy.servicesSecondaryRangeName", "ipAllocationPolicy.clusterIpv4CidrBlock", "ipAllocationPolicy.servicesIpv4CidrBlock", "ipAllocationPolicy.podCidrOverprovisionConfig", "privateClusterConfig.masterIpv4CidrBlock", "privateClusterConfig.privateEndpointSubnetwork", "defaultMaxPodsPerNode", "datapathProvider", "dataplaneOptimizationMode", "initialNodeCount", "nodePools", "confidentialNodes", "enableAutopilot", "enableKubernetesAlpha", "enableTpu", "masterAuth.clientCertificateConfig"]
    )
    + _NODE_CONFIG_REPLACES,
    blocks=("ipAllocationPolicy", "nodeConfig"),
    defaults={"deletionProtection": True},
)

_NODE_POOL = ResourceType(
    "{cluster_id}/nodePools/{name}",
    {"version": "{version}", "project": "{project}", "operation": ""},
    (
        *["name", "namePrefix", "cluster", "location", "project", "initialNodeCount", "maxPodsPerNode", "queuedProvisioning"],
        *("placementPolicy.policyName", "bestEffortProvisioning"),
        *(
            f"networkConfig.{field}"
            for field in ["acceleratorNetworkProfile", "additionalNodeNetworkConfigs", "additionalPodNetworkConfigs", "createPodRange", "podRange", "podIpv4CidrBlock", "subnetwork"]
        ),
        *_NODE_CONFIG_REPLACES,
    ),
    blocks=("placementPolicy", "nodeConfig"),
    inert=("placementPolicy.tpuTopology", "placementPolicy.type", "maintenancePolicies"),
)

_ACCOUNT_EMAIL = "{accountId}@{project}.iam.gserviceaccount.com"

_ROWS = {
    CLUSTER: _CLUSTER,
    NODE_POOL: _NODE_POOL,
    BUCKET: ResourceType(
        "{name}",
        {"url": "gs://{name}", "selfLink": "{gcs_url}/storage/v1/b/{name}", "project": "{project}"},
        ("name", "location", "project", "hierarchicalNamespace", "customPlacementConfig"),
        defaults={"forceDestroy": False, "storageClass": "STANDARD"},
    ),
    "gcp:compute/network:Network": ResourceType(
        "projects/{project}/global/networks/{name}",
        {"selfLink": _COMPUTE, "networkId": "{number}", "project": "{project}"},
        ("name", "project", "autoCreateSubnetworks", "description"),
    ),
    "gcp:compute/subnetwork:Subnetwork": ResourceType(
        "projects/{project}/regions/{region}/subnetworks/{name}",
        {"selfLink": _COMPUTE, "project": "{project}", "region": "{region}", "gatewayAddress": "10.0.0.1"},
        ("name", "project", "region", "network", "description", "purpose"),
    ),
    "gcp:compute/router:Router": ResourceType(
        "projects/{project}/regions/{region}/routers/{name}",
        {"selfLink": _COMPUTE, "project": "{project}", "region": "{region}"},
        ("name", "project", "region", "network"),
    ),
    "gcp:compute/routerNat:RouterNat": ResourceType(
        "{project}/{region}/{router}/{name}",
        {"project": "{project}", "region": "{region}"},
        ("name", "project", "region", "router"),
    ),
    RESOURCE_POLICY: ResourceType(
        "projects/{project}/regions/{region}/resourcePolicies/{name}",
        {"selfLink": _COMPUTE, "project": "{project}", "region": "{region}"},
        ("name", "project", "region", "workloadPolicy", "groupPlacementPolicy", "description"),
    ),
    "gcp:artifactregistry/repository:Repository": ResourceType(
        "projects/{project}/locations/{location}/repositories/{repositoryId}",
        {
            "name": "{repositoryId}",
            "registryUri": "{location}-docker.pkg.dev/{project}/{repositoryId}",
            "project": "{project}",
            "location": "{location}",
        },
        ("repositoryId", "project", "location", "format", "kmsKeyName", "mode"),
        name=None,
    ),
    "gcp:serviceaccount/account:Account": ResourceType(
        f"projects/{{project}}/serviceAccounts/{_ACCOUNT_EMAIL}",
        {
            "email": _ACCOUNT_EMAIL,
            "member": f"serviceAccount:{_ACCOUNT_EMAIL}",
            "name": f"projects/{{project}}/serviceAccounts/{_ACCOUNT_EMAIL}",
            "uniqueId": "{number}",
            "project": "{project}",
        },
        ("accountId", "project"),
        name=None,
    ),
    "gcp:projects/service:Service": ResourceType(
        "{project}/{service}", {"project": "{project}"}, ("service", "project"), name=None
    ),
    "gcp:storage/bucketIAMMember:BucketIAMMember": _iam_member("b/{bucket}", "bucket"),
    "gcp:projects/iAMMember:IAMMember": _iam_member("{project}", "project"),
    "gcp:serviceaccount/iAMMember:IAMMember": _iam_member("{serviceAccountId}", "serviceAccountId"),
    "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember": _iam_member(
        "projects/{project}/locations/{location}/repositories/{repository}", "repository", "location"
    ),
}
