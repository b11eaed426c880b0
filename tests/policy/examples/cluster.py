"""Plans that keep and break the rules of `policy.rules.cluster`."""

from tests.policy.example import Example, declared
from tests.policy.examples.plan import alone, cluster, configuration, having, namespace, several, spot_pool, system_pool

_JOB_SECRETS = "encrypted-job-secrets"
_HELD = (
    namespace(_JOB_SECRETS),
    configuration(_JOB_SECRETS),
    declared(
        "kubernetes:core/v1:Secret", _JOB_SECRETS, {"metadata": {"name": "pretrain-secrets", "namespace": _JOB_SECRETS}}
    ),
)


EXAMPLES: dict[str, Example] = {
    **alone(
        "control-plane-endpoint",
        cluster,
        "got an endpoint for everyone",
        ("controlPlaneEndpointsConfig", None),
        ("masterAuthorizedNetworksConfig", {"cidrBlocks": [{"cidrBlock": "0.0.0.0/0"}]}),
        ("masterAuthorizedNetworksConfig", {"cidrBlocks": [{"cidrBlock": "128.0.0.0/1"}]}),
        ("masterAuthorizedNetworksConfig", {"gcpPublicCidrsAccessEnabled": True}),
    ),
    **alone(
        "no-legacy-authentication",
        cluster,
        "expected enableLegacyAbac to be something other than true",
        ("enableLegacyAbac", True),
        ("masterAuth", {"clientCertificateConfig": {"issueClientCertificate": True}}),
        ("controlPlaneEndpointsConfig.dnsEndpointConfig", {"enableK8sTokensViaDns": True}),
        ("controlPlaneEndpointsConfig.dnsEndpointConfig", {"enableK8sCertsViaDns": True}),
        ("anonymousAuthenticationConfig.mode", "ENABLED"),
        ("anonymousAuthenticationConfig", None),
    ),
    **several(
        "private-nodes",
        "expected networkConfig.enablePrivateNodes to be true, got nothing",
        (cluster, ("privateClusterConfig.enablePrivateNodes", False)),
        (system_pool, ("networkConfig", None)),
    ),
    **several(
        "metadata-server",
        "GKE_METADATA, got GCE_METADATA",
        (cluster, ("workloadIdentityConfig", None)),
        (
            system_pool,
            ("nodeConfig.workloadMetadataConfig.mode", "GCE_METADATA"),
            ("nodeConfig.metadata", {"disable-legacy-endpoints": "false"}),
        ),
    ),
    **alone(
        "node-account",
        system_pool,
        "got 123-compute@developer.gserviceaccount.com",
        ("nodeConfig.serviceAccount", "123-compute@developer.gserviceaccount.com"),
        ("nodeConfig.serviceAccount", "default"),
        ("nodeConfig.serviceAccount", None),
    ),
    **several(
        "hardened-nodes",
        "got UBUNTU_CONTAINERD",
        (cluster, ("enableShieldedNodes", False)),
        (
            system_pool,
            ("nodeConfig.imageType", "UBUNTU_CONTAINERD"),
            ("nodeConfig.shieldedInstanceConfig.enableSecureBoot", None),
            ("nodeConfig.shieldedInstanceConfig.enableIntegrityMonitoring", False),
            ("nodeConfig.kubeletConfig", {"insecureKubeletReadonlyPortEnabled": "TRUE"}),
        ),
    ),
    **alone("network-policy", cluster, "got LEGACY_DATAPATH", ("datapathProvider", "LEGACY_DATAPATH")),
    **alone(
        "own-node-pools",
        cluster,
        "got node pools in the cluster's nodePools",
        ("nodePools", [{"name": "inline"}]),
        ("clusterAutoscaling", {"enabled": True}),
        ("removeDefaultNodePool", None),
    ),
    **alone("encrypted-secrets", cluster, "got DECRYPTED", ("databaseEncryption.state", "DECRYPTED")),
    _JOB_SECRETS: Example(
        (*_HELD, cluster(_JOB_SECRETS)),
        (*_HELD, having(cluster(_JOB_SECRETS), "databaseEncryption", None)),
        "got nothing, although jobs have the secrets pretrain-secrets",
    ),
    **alone("signed-images", cluster, "other than DISABLED", ("binaryAuthorization.evaluationMode", "DISABLED")),
    **alone("deletion-protection", cluster, "to be true, got false", ("deletionProtection", False)),
    **several(
        "auto-repair",
        "exclusionUntilEndOfSupports on a slice, got nothing",
        (system_pool, ("management.autoRepair", False)),
        (spot_pool, ("maintenancePolicies", None)),
    ),
    **alone(
        "system-nodes",
        system_pool,
        "2 or more nodes for the controllers, got 1",
        ("nodeCount", 1),
        ("nodeConfig.machineType", "n2-standard-64"),
    ),
}
