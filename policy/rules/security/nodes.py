"""What the machines of node pools must be."""

from collections.abc import Iterator

from policy.resources import CLUSTER, NODE_POOL, at, switched_on
from policy.rule import Declared, ResourceRule, Rule, Severity
from policy.rules.security.about import must, should
from policy.values import is_known

_CLOUD_PLATFORM = "https://www.googleapis.com/auth/cloud-platform"
_DEFAULT_ACCOUNT = "-compute@developer.gserviceaccount.com"
_HARDENING = "https://cloud.google.com/kubernetes-engine/docs/how-to/hardening-your-cluster"
_READ_ONLY_PORTS = (
    ("nodeConfig", "kubeletConfig", "insecureKubeletReadonlyPortEnabled"),
    ("nodePoolDefaults", "nodeConfigDefaults", "insecureKubeletReadonlyPortEnabled"),
)


def _metadata_server(pool: Declared) -> Iterator[str]:
    mode = at(pool.properties, "nodeConfig", "workloadMetadataConfig", "mode")
    if mode != "GKE_METADATA":
        yield f"expected nodeConfig.workloadMetadataConfig.mode GKE_METADATA, got {mode}"


def _account(resource: Declared) -> Iterator[str]:
    # What is not known yet is the address of an account that the program makes.
    account = at(resource.properties, "nodeConfig", "serviceAccount")
    if account is None or (is_known(account) and (account == "default" or account.endswith(_DEFAULT_ACCOUNT))):
        yield f"expected a service account for these nodes, got {account or 'none'}, which is Google's default account"


def _scopes(resource: Declared) -> Iterator[str]:
    scopes = at(resource.properties, "nodeConfig", "oauthScopes")
    if scopes is not None and scopes != [_CLOUD_PLATFORM]:
        yield f"expected the scope cloud-platform alone, got {', '.join(scopes)}"


def _image(pool: Declared) -> Iterator[str]:
    image = at(pool.properties, "nodeConfig", "imageType")
    if image is not None and image.upper() != "COS_CONTAINERD":
        yield f"expected imageType COS_CONTAINERD, got {image}"


def _boot(pool: Declared) -> Iterator[str]:
    for setting in ("enableSecureBoot", "enableIntegrityMonitoring"):
        if not switched_on(pool.properties, "nodeConfig", "shieldedInstanceConfig", setting, unsaid=False):
            yield f"expected shieldedInstanceConfig.{setting} to be true, got nothing or false"


def _legacy_metadata(pool: Declared) -> Iterator[str]:
    value = (at(pool.properties, "nodeConfig", "metadata") or {}).get("disable-legacy-endpoints", "true")
    if value != "true":
        yield f"expected metadata disable-legacy-endpoints to be true, got {value}"


def _read_only_port(resource: Declared) -> Iterator[str]:
    for path in _READ_ONLY_PORTS:
        if str(at(resource.properties, *path)).upper() == "TRUE":
            yield f"expected kubelet without its open port, got {'.'.join(path)} TRUE"


RULES: tuple[Rule, ...] = (
    ResourceRule(
        must(
            "metadata-server",
            Severity.HIGH,
            "Pods do not get the credentials of their node",
            why="Without GKE's metadata server any pod can ask for the node's token.",
            fix="Set nodeConfig.workloadMetadataConfig.mode to GKE_METADATA.",
            link="https://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity",
        ),
        (NODE_POOL,),
        _metadata_server,
    ),
    ResourceRule(
        must(
            "node-account",
            Severity.HIGH,
            "Nodes have a service account of their own",
            why="Google's default account may be an editor of the whole project.",
            fix="Declare a service account with roles/container.defaultNodeServiceAccount and name it.",
            link=_HARDENING + "#use_least_privilege_sa",
        ),
        (NODE_POOL,),
        _account,
    ),
    ResourceRule(
        should(
            "node-scopes",
            Severity.LOW,
            "Roles alone say what a node may do",
            why="Scopes are an older second list, which hides what the roles grant.",
            fix="Set nodeConfig.oauthScopes to cloud-platform and narrow the account's roles.",
            link="https://cloud.google.com/compute/docs/access/service-accounts#scopes_best_practice",
        ),
        (CLUSTER, NODE_POOL),
        _scopes,
    ),
    ResourceRule(
        must(
            "container-optimized-os",
            Severity.MEDIUM,
            "Nodes run Container-Optimized OS",
            why="It has a read-only root and no package manager; TPU nodes have no other.",
            fix="Remove imageType or set it to COS_CONTAINERD.",
            link="https://cloud.google.com/kubernetes-engine/docs/concepts/node-images",
        ),
        (NODE_POOL,),
        _image,
    ),
    ResourceRule(
        must(
            "secure-boot",
            Severity.MEDIUM,
            "Nodes boot what Google signed, and tell when they do not",
            why="A rootkit would otherwise survive in the boot chain unseen.",
            fix="Set enableSecureBoot and enableIntegrityMonitoring of shieldedInstanceConfig.",
            link="https://cloud.google.com/kubernetes-engine/docs/how-to/shielded-gke-nodes",
        ),
        (NODE_POOL,),
        _boot,
    ),
    ResourceRule(
        must(
            "no-legacy-metadata",
            Severity.HIGH,
            "The metadata server answers requests with its header alone",
            why="The endpoints without it hand the node's token to anyone who gets a pod to fetch an address.",
            fix="Remove disable-legacy-endpoints from the metadata, or set it to true.",
            link=_HARDENING,
        ),
        (NODE_POOL,),
        _legacy_metadata,
    ),
    ResourceRule(
        must(
            "no-read-only-port",
            Severity.MEDIUM,
            "Kubelet answers nobody who has not signed in",
            why="Its read-only port tells every pod of the network what runs on a node.",
            fix="Remove insecureKubeletReadonlyPortEnabled or set it to FALSE.",
            link="https://cloud.google.com/kubernetes-engine/docs/how-to/disable-kubelet-readonly-port",
        ),
        (CLUSTER, NODE_POOL),
        _read_only_port,
    ),
)
