"""What a cluster must be.

Owns what is decided for a control plane as a whole. Who reaches it is in `access`, its machines are in `nodes`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from policy.kueue import team_namespaces
from policy.resources import CLUSTER, at, namespace, object_name, of_kind, of_type, switched_on
from policy.rule import Broken, Declared, ResourceRule, Rule, Severity, StackRule
from policy.rules.security.about import must, should
from policy.values import is_known

_ENCRYPTION = "https://cloud.google.com/kubernetes-engine/docs/how-to/encrypting-secrets"
_HARDENING = "https://cloud.google.com/kubernetes-engine/docs/how-to/hardening-your-cluster"


def _workload_identity(cluster: Declared) -> Iterator[str]:
    if not at(cluster.properties, "workloadIdentityConfig", "workloadPool"):
        yield "expected workloadIdentityConfig.workloadPool to name the project's pool, got none"


def _release_channel(cluster: Declared) -> Iterator[str]:
    channel = at(cluster.properties, "releaseChannel", "channel")
    if channel in (None, "UNSPECIFIED"):
        yield f"expected a release channel, got {channel}"


def _vpc_native(cluster: Declared) -> Iterator[str]:
    mode = at(cluster.properties, "networkingMode")
    if mode != "VPC_NATIVE":
        yield f"expected networkingMode VPC_NATIVE, got {mode}"


def _dataplane(cluster: Declared) -> Iterator[str]:
    provider = at(cluster.properties, "datapathProvider")
    if provider != "ADVANCED_DATAPATH" and not at(cluster.properties, "networkPolicy", "enabled"):
        yield f"expected datapathProvider ADVANCED_DATAPATH or network policies to be on, got {provider}"


def _own_pools(cluster: Declared) -> Iterator[str]:
    if at(cluster.properties, "nodePools"):
        yield "expected every node pool to be a resource of its own, got pools within the cluster"
    if at(cluster.properties, "clusterAutoscaling", "enabled") or at(cluster.properties, "enableAutopilot"):
        yield "expected every node pool to be a resource of its own, got pools that GKE makes as pods ask for them"
    if not at(cluster.properties, "removeDefaultNodePool"):
        yield "expected removeDefaultNodePool to be true, got a cluster that keeps its default pool"


def _shielded(cluster: Declared) -> Iterator[str]:
    if not switched_on(cluster.properties, "enableShieldedNodes", unsaid=True):
        yield "expected shielded nodes, got enableShieldedNodes false"


def _released_features(cluster: Declared) -> Iterator[str]:
    if at(cluster.properties, "enableKubernetesAlpha"):
        yield "expected released features alone, got enableKubernetesAlpha true"


def _own_network(cluster: Declared) -> Iterator[str]:
    # What is not known yet is the output of a network that the program makes.
    network = cluster.properties.get("network")
    if network is None or (is_known(network) and str(network).rpartition("/")[2] == "default"):
        yield f"expected a network of the program's own, got {network or 'none, which means the default network'}"


def _encrypted_secrets(cluster: Declared) -> Iterator[str]:
    state = at(cluster.properties, "databaseEncryption", "state")
    if state not in ("ENCRYPTED", "ALL_OBJECTS_ENCRYPTION_ENABLED"):
        yield f"expected databaseEncryption.state ENCRYPTED, got {state}"


def _encrypted_job_secrets(resources: Sequence[Declared]) -> Iterator[Broken]:
    teams = {object_name(team) for team in team_namespaces(resources)}
    held = sorted(str(object_name(secret)) for secret in of_kind(resources, "Secret") if namespace(secret) in teams)
    if held:
        for cluster in of_type(resources, CLUSTER):
            for says in _encrypted_secrets(cluster):
                yield Broken(f"{says}, and the jobs' secrets {', '.join(held)}", cluster.urn)


def _signed_images(cluster: Declared) -> Iterator[str]:
    mode = at(cluster.properties, "binaryAuthorization", "evaluationMode")
    if mode in (None, "DISABLED"):
        yield f"expected binaryAuthorization.evaluationMode to name a policy, got {mode}"


RULES: tuple[Rule, ...] = (
    ResourceRule(
        must(
            "workload-identity",
            Severity.HIGH,
            "Pods have identities of their own",
            why="Without workload identity every pod of a node may do what the node may do.",
            fix="Set workloadIdentityConfig.workloadPool to PROJECT.svc.id.goog.",
            link="https://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity",
        ),
        (CLUSTER,),
        _workload_identity,
    ),
    ResourceRule(
        must(
            "release-channel",
            Severity.MEDIUM,
            "Google keeps the cluster's version patched",
            why="Outside a release channel security patches come late or not at all.",
            fix="Set cluster.release_channel of the stack file.",
            link="https://cloud.google.com/kubernetes-engine/docs/concepts/release-channels",
        ),
        (CLUSTER,),
        _release_channel,
    ),
    ResourceRule(
        must(
            "vpc-native",
            Severity.MEDIUM,
            "Pods have addresses of the VPC",
            why="Routes-based clusters can have neither private nodes nor Dataplane V2.",
            fix="Set networkingMode to VPC_NATIVE and name ranges for pods and services.",
            link="https://cloud.google.com/kubernetes-engine/docs/concepts/alias-ips",
        ),
        (CLUSTER,),
        _vpc_native,
    ),
    ResourceRule(
        must(
            "network-policy",
            Severity.MEDIUM,
            "The cluster enforces network policies",
            why="Otherwise a NetworkPolicy is accepted and does nothing; the choice cannot be changed later.",
            fix="Set datapathProvider to ADVANCED_DATAPATH.",
            link="https://cloud.google.com/kubernetes-engine/docs/concepts/dataplane-v2",
        ),
        (CLUSTER,),
        _dataplane,
    ),
    ResourceRule(
        must(
            "own-node-pools",
            Severity.MEDIUM,
            "Every node pool is a resource of its own",
            why="No rule sees the others: a pool within the cluster, the default pool or those of auto-provisioning.",
            fix="Set removeDefaultNodePool, leave auto-provisioning off and declare each pool as a NodePool.",
            link=_HARDENING,
        ),
        (CLUSTER,),
        _own_pools,
    ),
    ResourceRule(
        must(
            "shielded-nodes",
            Severity.HIGH,
            "Only machines of the project can join as nodes",
            why="Without shielded nodes a stolen bootstrap credential lets any machine pose as a node.",
            fix="Remove enableShieldedNodes, whose default is true.",
            link="https://cloud.google.com/kubernetes-engine/docs/how-to/shielded-gke-nodes",
        ),
        (CLUSTER,),
        _shielded,
    ),
    ResourceRule(
        must(
            "no-alpha-features",
            Severity.MEDIUM,
            "The cluster has released features alone",
            why="An alpha cluster gets no upgrades and is deleted after 30 days.",
            fix="Remove enableKubernetesAlpha.",
            link="https://cloud.google.com/kubernetes-engine/docs/concepts/alpha-clusters",
        ),
        (CLUSTER,),
        _released_features,
    ),
    ResourceRule(
        must(
            "own-network",
            Severity.MEDIUM,
            "The cluster has a network of its own",
            why="The default network of a project is shared, and its firewall lets SSH in from everywhere.",
            fix="Declare a network and a subnetwork and name them.",
            link="https://cloud.google.com/vpc/docs/vpc#default-network",
        ),
        (CLUSTER,),
        _own_network,
    ),
    ResourceRule(
        should(
            "encrypted-secrets",
            Severity.LOW,
            "Secrets of the cluster are encrypted with a key of your own",
            why="Whoever gets at a backup of the control plane's database could read them.",
            fix="Set cluster.encryption_key to a Cloud KMS key, or grant an exception where jobs have no secrets.",
            link=_ENCRYPTION,
        ),
        (CLUSTER,),
        _encrypted_secrets,
    ),
    StackRule(
        replace(
            must(
                "encrypted-job-secrets",
                Severity.HIGH,
                "Secrets of jobs are encrypted with a key of your own",
                why="They open what lies outside the cluster, such as a data hub, and outlive it in its backups.",
                fix="Set cluster.encryption_key to a Cloud KMS key. Nobody is excused.",
                link=_ENCRYPTION,
            ),
            excusable=False,
        ),
        _encrypted_job_secrets,
    ),
    ResourceRule(
        should(
            "signed-images",
            Severity.LOW,
            "The cluster runs images that a policy admits",
            why="A digest says which image runs, and not that it was built by whom you trust.",
            fix="Set binaryAuthorization.evaluationMode to PROJECT_SINGLETON_POLICY_ENFORCE.",
            link="https://cloud.google.com/binary-authorization/docs/overview",
        ),
        (CLUSTER,),
        _signed_images,
    ),
)
