"""What the rules of security are shown."""

from collections.abc import Mapping
from typing import Any

from policy.resources import BUCKET, CLUSTER, NETWORK, NODE_POOL, REPOSITORY
from policy.rules.security.access import SERVICE
from policy.rules.security.roles import RBAC
from tests.policy.example import Example, declared
from tests.policy.examples.plan import configuration, namespace
from tests.policy.examples.security_grants import EXAMPLES as OF_GRANTS
from tests.policy.examples.security_namespaces import EXAMPLES as OF_NAMESPACES
from tests.policy.examples.security_pods import EXAMPLES as OF_PODS

_FIREWALL = "gcp:compute/firewall:Firewall"
_DEFAULT_ACCOUNT = "123-compute@developer.gserviceaccount.com"
_CLOUD_PLATFORM = "https://www.googleapis.com/auth/cloud-platform"


def _pair(
    resource_type: str, rule: str, passing: Mapping[str, Any], failing: Mapping[str, Any], says: str, **others: Any
) -> tuple[str, Example]:
    """An example with one resource each; `others` are failing ones besides."""
    bad = (failing, *others.values())
    plan = tuple(declared(resource_type, f"{rule}-{index}", properties) for index, properties in enumerate(bad))
    return rule, Example((declared(resource_type, rule, passing),), plan, says)


_HOLDING_SECRETS = (
    namespace("team"),
    configuration("team"),
    declared("kubernetes:core/v1:Secret", "secrets", {"metadata": {"name": "pretrain-secrets", "namespace": "team"}}),
)
_CLUSTERS = (
    _pair(CLUSTER, "workload-identity", {"workloadIdentityConfig": {"workloadPool": "p.svc.id.goog"}}, {}, "got none"),
    _pair(
        CLUSTER,
        "release-channel",
        {"releaseChannel": {"channel": "REGULAR"}},
        {"releaseChannel": {"channel": "UNSPECIFIED"}},
        "got UNSPECIFIED",
    ),
    _pair(CLUSTER, "vpc-native", {"networkingMode": "VPC_NATIVE"}, {"networkingMode": "ROUTES"}, "got ROUTES"),
    _pair(
        CLUSTER,
        "network-policy",
        {"datapathProvider": "ADVANCED_DATAPATH"},
        {"datapathProvider": "LEGACY_DATAPATH"},
        "got LEGACY_DATAPATH",
    ),
    _pair(
        CLUSTER,
        "own-node-pools",
        {"removeDefaultNodePool": True},
        {"removeDefaultNodePool": True, "nodePools": [{"name": "inline"}]},
        "pools within the cluster",
        default={"initialNodeCount": 1},
        provisioned={"removeDefaultNodePool": True, "clusterAutoscaling": {"enabled": True}},
    ),
    _pair(CLUSTER, "shielded-nodes", {}, {"enableShieldedNodes": False}, "got enableShieldedNodes false"),
    _pair(CLUSTER, "no-alpha-features", {}, {"enableKubernetesAlpha": True}, "got enableKubernetesAlpha true"),
    _pair(
        CLUSTER,
        "own-network",
        {"network": "projects/p/global/networks/mine"},
        {"network": "projects/p/global/networks/default"},
        "networks/default",
        unnamed={},
    ),
    _pair(
        CLUSTER,
        "encrypted-secrets",
        {"databaseEncryption": {"state": "ENCRYPTED", "keyName": "k"}},
        {"databaseEncryption": {"state": "DECRYPTED"}},
        "got DECRYPTED",
    ),
    (
        "encrypted-job-secrets",
        Example(
            (*_HOLDING_SECRETS, declared(CLUSTER, "cluster", {"databaseEncryption": {"state": "ENCRYPTED"}})),
            (*_HOLDING_SECRETS, declared(CLUSTER, "cluster", {})),
            "got None, and the jobs' secrets pretrain-secrets",
        ),
    ),
    _pair(
        CLUSTER,
        "signed-images",
        {"binaryAuthorization": {"evaluationMode": "PROJECT_SINGLETON_POLICY_ENFORCE"}},
        {"binaryAuthorization": {"evaluationMode": "DISABLED"}},
        "got DISABLED",
    ),
    _pair(
        CLUSTER,
        "control-plane-endpoint",
        {"controlPlaneEndpointsConfig": {"ipEndpointsConfig": {"enabled": False}}},
        {"controlPlaneEndpointsConfig": {"dnsEndpointConfig": {"allowExternalTraffic": True}}},
        "got one for everyone",
    ),
    _pair(
        CLUSTER,
        "authorized-networks",
        {"masterAuthorizedNetworksConfig": {"cidrBlocks": [{"cidrBlock": "192.0.2.0/24"}]}},
        {"masterAuthorizedNetworksConfig": {"cidrBlocks": [{"cidrBlock": "0.0.0.0/0"}]}},
        "got 0.0.0.0/0",
        halves={"masterAuthorizedNetworksConfig": {"cidrBlocks": [{"cidrBlock": "128.0.0.0/1"}]}},
        rented={"masterAuthorizedNetworksConfig": {"gcpPublicCidrsAccessEnabled": True}},
    ),
    _pair(
        CLUSTER,
        "no-legacy-authentication",
        {"enableLegacyAbac": False},
        {"enableLegacyAbac": True},
        "got enableLegacyAbac true",
        certificate={"masterAuth": {"clientCertificateConfig": {"issueClientCertificate": True}}},
        tokens={"controlPlaneEndpointsConfig": {"dnsEndpointConfig": {"enableK8sTokensViaDns": True}}},
    ),
    _pair(
        CLUSTER,
        "no-anonymous-access",
        {"anonymousAuthenticationConfig": {"mode": "LIMITED"}},
        {"anonymousAuthenticationConfig": {"mode": "ENABLED"}},
        "got ENABLED",
        unsaid={},
    ),
    _pair(
        CLUSTER,
        "no-bindings-for-everyone",
        {
            "rbacBindingConfig": {
                "enableInsecureBindingSystemAuthenticated": False,
                "enableInsecureBindingSystemUnauthenticated": False,
            }
        },
        {"rbacBindingConfig": {"enableInsecureBindingSystemUnauthenticated": False}},
        "enableInsecureBindingSystemAuthenticated",
    ),
)
_NETWORKS = (
    _pair(
        NODE_POOL,
        "private-nodes",
        {"networkConfig": {"enablePrivateNodes": True}},
        {},
        "networkConfig.enablePrivateNodes",
    ),
    _pair(
        _FIREWALL,
        "no-open-firewall",
        {"sourceRanges": ["10.0.0.0/8"], "allows": [{"protocol": "tcp"}]},
        {"sourceRanges": ["10.0.0.0/8", "0.0.0.0/0"], "allows": [{"protocol": "tcp"}]},
        "got 0.0.0.0/0",
        silent={"allows": [{"protocol": "tcp"}]},
        halves={"sourceRanges": ["0.0.0.0/1", "128.0.0.0/1"], "allows": [{"protocol": "tcp"}]},
    ),
    _pair(
        NETWORK,
        "chosen-subnetworks",
        {"autoCreateSubnetworks": False},
        {"autoCreateSubnetworks": True},
        "a subnetwork in every region",
    ),
    _pair(
        "gcp:compute/subnetwork:Subnetwork",
        "private-google-access",
        {"privateIpGoogleAccess": True},
        {"ipCidrRange": "10.0.0.0/18"},
        "got nothing or false",
    ),
    _pair(
        SERVICE,
        "no-public-services",
        {
            "metadata": {"annotations": {"networking.gke.io/load-balancer-type": "Internal"}},
            "spec": {"type": "LoadBalancer"},
        },
        {"spec": {"type": "LoadBalancer"}},
        "got LoadBalancer",
        port={"spec": {"type": "NodePort"}},
    ),
)
_NODES = (
    _pair(
        NODE_POOL,
        "metadata-server",
        {"nodeConfig": {"workloadMetadataConfig": {"mode": "GKE_METADATA"}}},
        {"nodeConfig": {"workloadMetadataConfig": {"mode": "GCE_METADATA"}}},
        "got GCE_METADATA",
    ),
    _pair(
        NODE_POOL,
        "node-account",
        {"nodeConfig": {"serviceAccount": "nodes@my-project.iam.gserviceaccount.com"}},
        {"nodeConfig": {"serviceAccount": _DEFAULT_ACCOUNT}},
        f"got {_DEFAULT_ACCOUNT}",
        unnamed={"nodeConfig": {}},
    ),
    _pair(
        NODE_POOL,
        "node-scopes",
        {"nodeConfig": {"oauthScopes": [_CLOUD_PLATFORM]}},
        {"nodeConfig": {"oauthScopes": [_CLOUD_PLATFORM, "https://www.googleapis.com/auth/compute"]}},
        "auth/compute",
    ),
    _pair(
        NODE_POOL,
        "container-optimized-os",
        {},
        {"nodeConfig": {"imageType": "UBUNTU_CONTAINERD"}},
        "got UBUNTU_CONTAINERD",
    ),
    _pair(
        NODE_POOL,
        "secure-boot",
        {"nodeConfig": {"shieldedInstanceConfig": {"enableSecureBoot": True, "enableIntegrityMonitoring": True}}},
        {"nodeConfig": {"shieldedInstanceConfig": {"enableIntegrityMonitoring": True}}},
        "enableSecureBoot",
    ),
    _pair(
        NODE_POOL,
        "no-legacy-metadata",
        {"nodeConfig": {"metadata": {"disable-legacy-endpoints": "true"}}},
        {"nodeConfig": {"metadata": {"disable-legacy-endpoints": "false"}}},
        "got false",
    ),
    _pair(
        NODE_POOL,
        "no-read-only-port",
        {"nodeConfig": {"kubeletConfig": {"insecureKubeletReadonlyPortEnabled": "FALSE"}}},
        {"nodeConfig": {"kubeletConfig": {"insecureKubeletReadonlyPortEnabled": "TRUE"}}},
        "insecureKubeletReadonlyPortEnabled TRUE",
    ),
)
_STORAGE = (
    _pair(
        BUCKET,
        "no-public-bucket",
        {"publicAccessPrevention": "enforced"},
        {"publicAccessPrevention": "inherited"},
        "got inherited",
    ),
    _pair(BUCKET, "uniform-bucket-access", {"uniformBucketLevelAccess": True}, {}, "got nothing or false"),
    _pair(
        BUCKET,
        "recoverable-objects",
        {"softDeletePolicy": {"retentionDurationSeconds": 604800}},
        {"softDeletePolicy": {"retentionDurationSeconds": 0}},
        "retentionDurationSeconds 0",
    ),
    _pair(
        REPOSITORY,
        "fixed-image-tags",
        {"format": "DOCKER", "dockerConfig": {"immutableTags": True}},
        {"format": "DOCKER"},
        "immutableTags",
    ),
    _pair(
        REPOSITORY,
        "scanned-images",
        {"format": "DOCKER"},
        {"format": "DOCKER", "vulnerabilityScanningConfig": {"enablementConfig": "DISABLED"}},
        "got enablementConfig DISABLED",
    ),
)
_ROLES = (
    _pair(
        f"{RBAC}:ClusterRoleBinding",
        "no-cluster-admin",
        {"roleRef": {"name": "view"}, "subjects": []},
        {"roleRef": {"name": "cluster-admin"}, "subjects": []},
        "got cluster-admin",
    ),
    _pair(
        f"{RBAC}:RoleBinding",
        "no-binding-for-everyone",
        {"roleRef": {"name": "view"}, "subjects": [{"kind": "Group", "name": "trainers@example.com"}]},
        {"roleRef": {"name": "view"}, "subjects": [{"kind": "Group", "name": "system:authenticated"}]},
        "got system:authenticated",
    ),
    _pair(
        f"{RBAC}:ClusterRole",
        "named-rights",
        {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]},
        {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}]},
        "expected verbs by name, got * with pods",
        more={"rules": [{"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]}]},
    ),
    _pair(
        "kubernetes:core/v1:Namespace",
        "pod-security",
        {"metadata": {"name": "research", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}},
        {"metadata": {"name": "research", "labels": {"pod-security.kubernetes.io/enforce": "baseline"}}},
        "got baseline",
        unlabelled={"metadata": {"name": "research"}},
    ),
)
EXAMPLES: dict[str, Example] = {
    **dict((*_CLUSTERS, *_NETWORKS, *_NODES, *_STORAGE, *_ROLES)),
    **OF_GRANTS,
    **OF_PODS,
    **OF_NAMESPACES,
}
