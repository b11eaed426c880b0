"""Rules on clusters and their node pools: access, permissions of machines, and maintenance."""

import re
from collections.abc import Iterator, Sequence
from ipaddress import ip_network

from policy.rule import (
    CLUSTER,
    NODE_POOL,
    Declared,
    ResourceRule,
    Rule,
    StackRule,
    Violation,
    at,
    every,
    is_known,
    must_be,
    must_be_set,
    must_not_be,
    namespace,
    object_name,
    select_kind,
    select_type,
    show,
)
from policy.slices import is_tpu, team_namespaces

_BIGGEST_NETWORK_BITS = 8
"""Prefix of the largest range that one organization owns, such as 10.0.0.0/8. Two ranges of 1 bit are the internet."""
_MAX_SYSTEM_CPUS, _MIN_SYSTEM_NODES = 64, 2
_CPUS = re.compile(r"-(\d+)(?:-|$)")
_DEFAULT_ACCOUNT = "-compute@developer.gserviceaccount.com"
_ENCRYPTED = must_be("databaseEncryption.state", "ENCRYPTED", "ALL_OBJECTS_ENCRYPTION_ENABLED")
_HARDENING = "https://cloud.google.com/kubernetes-engine/docs/how-to/hardening-your-cluster"
_ENCRYPTION = "https://cloud.google.com/kubernetes-engine/docs/how-to/encrypting-secrets"


def is_everywhere(block: str) -> bool:
    """Return whether a range of addresses is too large to belong to one organization."""
    return ip_network(block, strict=False).prefixlen < _BIGGEST_NETWORK_BITS


def _control_plane(cluster: Declared) -> Iterator[str]:
    networks = at(cluster.properties, "masterAuthorizedNetworksConfig")
    # GKE's default is an IP endpoint.
    by_address = at(cluster.properties, "controlPlaneEndpointsConfig", "ipEndpointsConfig", "enabled") in (None, True)
    private = at(cluster.properties, "privateClusterConfig", "enablePrivateEndpoint")
    if by_address and not private and networks is None:
        yield "expected only a DNS endpoint, or networks that may use the IP endpoint, got an endpoint for everyone"
    for block in every(networks, "cidrBlocks"):
        if is_everywhere(block["cidrBlock"]):
            yield f"expected networks that you know, got {block['cidrBlock']}"


def _own_account(pool: Declared) -> Iterator[str]:
    # The address of an account that the program creates is not known yet.
    account = at(pool.properties, "nodeConfig", "serviceAccount")
    if account is None or (is_known(account) and (account == "default" or account.endswith(_DEFAULT_ACCOUNT))):
        yield f"expected a service account for these nodes, got {account or 'nothing'}, Google's default account"


def _network_policies(cluster: Declared) -> Iterator[str]:
    provider = at(cluster.properties, "datapathProvider")
    if provider != "ADVANCED_DATAPATH" and not at(cluster.properties, "networkPolicy", "enabled"):
        yield f"expected datapathProvider ADVANCED_DATAPATH or networkPolicy.enabled, got {show(provider)}"


def _own_pools(cluster: Declared) -> Iterator[str]:
    if at(cluster.properties, "nodePools"):
        yield "expected every node pool to be a resource, got node pools in the cluster's nodePools"
    for switch in ("clusterAutoscaling.enabled", "enableAutopilot"):
        if at(cluster.properties, *switch.split(".")):
            yield f"expected every node pool to be a resource, got {switch}, which makes GKE create pools"


def _encrypted_for_jobs(resources: Sequence[Declared]) -> Iterator[Violation]:
    teams = {object_name(team) for team in team_namespaces(resources)}
    held = sorted(str(object_name(secret)) for secret in select_kind(resources, "Secret") if namespace(secret) in teams)
    for cluster in select_type(resources, CLUSTER) if held else ():
        for message in _ENCRYPTED(cluster):
            yield Violation(f"{message}, although jobs have the secrets {', '.join(held)}", cluster.urn)


def _repaired(pool: Declared) -> Iterator[str]:
    # Compute Engine refuses repairs for flex-start, whose nodes end after a set time.
    if not at(pool.properties, "nodeConfig", "flexStart"):
        yield from must_be("management.autoRepair", True, unset=True)(pool)


def _not_interrupted(pool: Declared) -> Iterator[str]:
    exclusions = [
        at(exclusion, "enabled")
        for policy in every(pool.properties, "maintenancePolicies")
        for exclusion in every(policy, "exclusionUntilEndOfSupports")
    ]
    if is_tpu(pool) and not any(exclusions):
        yield "expected maintenancePolicies with exclusionUntilEndOfSupports on a slice, got nothing"


def _system_nodes(resources: Sequence[Declared]) -> Iterator[Violation]:
    pools = [pool for pool in select_type(resources, NODE_POOL) if not is_tpu(pool)]
    for pool in pools:
        count = at(pool.properties, "nodeCount")
        if count is not None and count < _MIN_SYSTEM_NODES:
            yield Violation(f"expected {_MIN_SYSTEM_NODES} or more nodes for the controllers, got {count}", pool.urn)
    cpus = sum(map(_cpus, pools))
    if cpus > _MAX_SYSTEM_CPUS:
        yield Violation(f"expected at most {_MAX_SYSTEM_CPUS} CPUs in all nodes without chips, got {cpus}", None)


def _cpus(pool: Declared) -> int:
    """Return the CPUs of all its nodes if the machine type names them, as `n2-custom-8-32768` does; otherwise 0."""
    size = _CPUS.search(at(pool.properties, "nodeConfig", "machineType") or "")
    zones = len(every(pool.properties, "nodeLocations")) or 1
    nodes = at(pool.properties, "nodeCount") or at(pool.properties, "autoscaling", "maxNodeCount") or 0
    return int(nodes) * zones * (int(size[1]) if size else 0)


RULES: tuple[Rule, ...] = (
    ResourceRule(
        id="control-plane-endpoint",
        severity="high",
        title="Only known networks reach the IP endpoint of the control plane",
        why="With an open endpoint, one leaked credential or one bug of the API server is enough to lose the cluster.",
        fix="Leave cluster.authorized_networks empty, which allows only the DNS endpoint, or name your networks there.",
        link="https://cloud.google.com/kubernetes-engine/docs/concepts/network-isolation",
        checks={
            CLUSTER: (
                _control_plane,
                # Every machine that anyone rents from Google Cloud.
                must_not_be("masterAuthorizedNetworksConfig.gcpPublicCidrsAccessEnabled", True),
            )
        },
        replaces=("authorized-networks",),
    ),
    ResourceRule(
        id="no-legacy-authentication",
        severity="high",
        title="People and programs sign in to the control plane only through Google",
        why="A client certificate cannot be revoked, ABAC grants rights that RBAC does not show, and callers without"
        " credentials need no more than health checks.",
        fix="Remove the legacy setting, and set anonymousAuthenticationConfig.mode to LIMITED.",
        link=_HARDENING,
        checks={
            CLUSTER: (
                must_not_be("enableLegacyAbac", True),
                must_not_be("masterAuth.clientCertificateConfig.issueClientCertificate", True),
                must_not_be("controlPlaneEndpointsConfig.dnsEndpointConfig.enableK8sTokensViaDns", True),
                must_not_be("controlPlaneEndpointsConfig.dnsEndpointConfig.enableK8sCertsViaDns", True),
                must_be("anonymousAuthenticationConfig.mode", "LIMITED"),
            )
        },
        replaces=("no-anonymous-access",),
    ),
    ResourceRule(
        id="private-nodes",
        severity="high",
        title="Nodes have no public addresses",
        why="With a public address, every port that a node opens by mistake is open to the internet.",
        fix="Set enablePrivateNodes on the cluster and on every node pool.",
        link="https://cloud.google.com/kubernetes-engine/docs/concepts/network-isolation",
        checks={
            CLUSTER: must_be("privateClusterConfig.enablePrivateNodes", True),
            NODE_POOL: must_be("networkConfig.enablePrivateNodes", True),
        },
    ),
    ResourceRule(
        id="metadata-server",
        severity="high",
        title="Pods act as themselves and never get the credentials of their node",
        why="Without workload identity and GKE's metadata server, any pod can ask for the token of its node.",
        fix="Set workloadIdentityConfig.workloadPool of the cluster to PROJECT.svc.id.goog and"
        " nodeConfig.workloadMetadataConfig.mode of the pool to GKE_METADATA, without legacy endpoints.",
        link="https://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity",
        checks={
            CLUSTER: must_be_set("workloadIdentityConfig.workloadPool"),
            NODE_POOL: (
                must_be("nodeConfig.workloadMetadataConfig.mode", "GKE_METADATA"),
                must_be("nodeConfig.metadata.disable-legacy-endpoints", "true", unset="true"),
            ),
        },
        replaces=("workload-identity", "no-legacy-metadata"),
    ),
    ResourceRule(
        id="node-account",
        severity="high",
        title="Nodes have a service account of their own",
        why="Google's default account may be an editor of the whole project.",
        fix="Declare a service account with roles/container.defaultNodeServiceAccount and name it.",
        link=_HARDENING + "#use_least_privilege_sa",
        checks={NODE_POOL: _own_account},
    ),
    ResourceRule(
        id="hardened-nodes",
        severity="high",
        title="Nodes boot Google's signed system, prove who they are, and have no open kubelet port",
        why="Otherwise a rootkit can hide in the boot chain, a machine with a stolen credential can join as a node, and"
        " kubelet's read-only port shows every pod what runs on the node.",
        fix="Remove enableShieldedNodes, imageType and insecureKubeletReadonlyPortEnabled, and enable secure boot and"
        " integrity monitoring in shieldedInstanceConfig.",
        link="https://cloud.google.com/kubernetes-engine/docs/how-to/shielded-gke-nodes",
        checks={
            CLUSTER: (
                must_not_be("enableShieldedNodes", False),
                must_not_be("nodePoolDefaults.nodeConfigDefaults.insecureKubeletReadonlyPortEnabled", "TRUE"),
            ),
            NODE_POOL: (
                must_be("nodeConfig.imageType", "COS_CONTAINERD", "cos_containerd", unset="COS_CONTAINERD"),
                must_be("nodeConfig.shieldedInstanceConfig.enableSecureBoot", True),
                must_be("nodeConfig.shieldedInstanceConfig.enableIntegrityMonitoring", True),
                must_not_be("nodeConfig.kubeletConfig.insecureKubeletReadonlyPortEnabled", "TRUE"),
            ),
        },
        replaces=("shielded-nodes", "container-optimized-os", "secure-boot", "no-read-only-port"),
    ),
    ResourceRule(
        id="network-policy",
        severity="medium",
        title="The cluster enforces network policies",
        why="Otherwise the API server accepts a NetworkPolicy that has no effect. The choice cannot be changed later.",
        fix="Set datapathProvider to ADVANCED_DATAPATH.",
        link="https://cloud.google.com/kubernetes-engine/docs/concepts/dataplane-v2",
        checks={CLUSTER: _network_policies},
    ),
    ResourceRule(
        id="own-node-pools",
        severity="medium",
        title="Every node pool is a resource of its own",
        why="No rule sees any other pool: those in the cluster resource, the default pool, and those that GKE creates.",
        fix="Set removeDefaultNodePool, leave auto-provisioning off, and declare each pool as a NodePool.",
        link=_HARDENING,
        checks={CLUSTER: (_own_pools, must_be("removeDefaultNodePool", True))},
    ),
    ResourceRule(
        id="encrypted-secrets",
        severity="low",
        level="advisory",
        title="Your own key encrypts the Secrets of the cluster",
        why="Anyone who gets a backup of the control plane's database could read them.",
        fix="Set cluster.encryption_key to a Cloud KMS key, or grant an exception if no job has secrets.",
        link=_ENCRYPTION,
        checks={CLUSTER: _ENCRYPTED},
    ),
    StackRule(
        id="encrypted-job-secrets",
        severity="high",
        title="Your own key encrypts the Secrets of jobs",
        why="They give access to services outside the cluster, such as a data hub, and remain in its backups.",
        fix="Set cluster.encryption_key to a Cloud KMS key. No exception is possible.",
        link=_ENCRYPTION,
        check=_encrypted_for_jobs,
        excusable=False,
    ),
    ResourceRule(
        id="signed-images",
        severity="low",
        level="advisory",
        title="The cluster runs only images that Binary Authorization admits",
        why="A digest says which image runs, but not that someone you trust has built it.",
        fix="Set binaryAuthorization.evaluationMode to PROJECT_SINGLETON_POLICY_ENFORCE.",
        link="https://cloud.google.com/binary-authorization/docs/overview",
        checks={CLUSTER: must_not_be("binaryAuthorization.evaluationMode", None, "DISABLED")},
    ),
    ResourceRule(
        id="deletion-protection",
        severity="high",
        title="A cluster is not deleted by mistake",
        why="One `destroy`, or a change that replaces the cluster, ends all its jobs and gives up its chips.",
        fix="Write the section `cluster` with `name` and `deletion_protection: true` in the stack file. If the stack is"
        " temporary, grant an exception in policy/stacks/STACK.json, which `multislice init STACK` writes for a new"
        " stack.",
        link="https://www.pulumi.com/registry/packages/gcp/api-docs/container/cluster/",
        checks={CLUSTER: must_be("deletionProtection", True, unset=True)},
    ),
    ResourceRule(
        id="auto-repair",
        severity="high",
        title="Broken nodes are replaced, and no upgrade interrupts a slice",
        why="A slice with one dead host runs nothing and is billed until a person notices (CKV_GCP_9), and an upgrade"
        " of one host recreates the whole slice.",
        fix="Leave management.autoRepair on except for flex-start, and make the pools of slices with a maintenance"
        " policy that has exclusionUntilEndOfSupports: the provider ignores a later change.",
        link="https://cloud.google.com/kubernetes-engine/docs/concepts/maintenance-windows-and-exclusions",
        checks={NODE_POOL: (_repaired, _not_interrupted)},
        replaces=("slice-not-interrupted",),
    ),
    StackRule(
        id="system-nodes",
        severity="medium",
        level="advisory",
        title="There are two or more nodes without chips, and they are small",
        why="While the only node is repaired or upgraded, Kueue admits no job and JobSet restarts none. A few CPUs are"
        " enough for both, even with thousands of hosts.",
        fix="Set cluster.system_nodes to 2 or more, and choose a smaller cluster.system_machine_type.",
        link="https://cloud.google.com/kubernetes-engine/docs/concepts/planning-large-workloads",
        check=_system_nodes,
        replaces=("system-nodes-small",),
    ),
)
