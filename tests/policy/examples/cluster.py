"""Plans that keep and break the rules of `policy.rules.cluster`."""

from tests.policy.example import Example, declared
from tests.policy.examples.plan import alone, broken, cluster, configuration, having, namespace, spot_pool, system_pool

_JOB_SECRETS = "encrypted-job-secrets"
_HELD = (
    namespace(_JOB_SECRETS),
    configuration(_JOB_SECRETS),
    declared(
        "kubernetes:core/v1:Secret", _JOB_SECRETS, {"metadata": {"name": "pretrain-secrets", "namespace": _JOB_SECRETS}}
    ),
)


def _both(rule: str, says: str, of_cluster: tuple[str, object], *of_pool: tuple[str, object]) -> dict[str, Example]:
    """Return an example of a rule on clusters and node pools, each change in a resource of its own."""
    failing = (*broken(rule, cluster, of_cluster), *broken(rule, system_pool, *of_pool))
    return {rule: Example((cluster(rule), system_pool(rule)), failing, says)}


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
    **_both(
        "private-nodes",
        "expected networkConfig.enablePrivateNodes to be true, got nothing",
        ("privateClusterConfig.enablePrivateNodes", False),
        ("networkConfig", None),
    ),
    **_both(
        "metadata-server",
        "GKE_METADATA, got GCE_METADATA",
        ("workloadIdentityConfig", None),
        ("nodeConfig.workloadMetadataConfig.mode", "GCE_METADATA"),
        ("nodeConfig.metadata", {"disable-legacy-endpoints": "false"}),
    ),
    **alone(
        "node-account",
        system_pool,
        "got 123-compute@developer.gserviceaccount.com",
        ("nodeConfig.serviceAccount", "123-compute@developer.gserviceaccount.com"),
        ("nodeConfig.serviceAccount", "default"),
        ("nodeConfig.serviceAccount", None),
    ),
    **_both(
        "hardened-nodes",
        "got UBUNTU_CONTAINERD",
        ("enableShieldedNodes", False),
        ("nodeConfig.imageType", "UBUNTU_CONTAINERD"),
        ("nodeConfig.shieldedInstanceConfig.enableSecureBoot", None),
        ("nodeConfig.shieldedInstanceConfig.enableIntegrityMonitoring", False),
        ("nodeConfig.kubeletConfig", {"insecureKubeletReadonlyPortEnabled": "TRUE"}),
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
    "auto-repair": Example(
        (system_pool("auto-repair"), spot_pool("auto-repair")),
        (
            *broken("auto-repair", system_pool, ("management.autoRepair", False)),
            *broken("auto-repair", spot_pool, ("maintenancePolicies", None)),
        ),
        "exclusionUntilEndOfSupports on a slice, got nothing",
    ),
    **alone(
        "system-nodes",
        system_pool,
        "2 or more nodes for the controllers, got 1",
        ("nodeCount", 1),
        ("nodeConfig.machineType", "n2-standard-64"),
    ),
}
