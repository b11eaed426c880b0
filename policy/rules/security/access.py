"""Who reaches a cluster and its machines from outside.

Owns the endpoints of the control plane, how one signs in there, firewalls, and Services with addresses.
"""

from collections.abc import Iterator
from ipaddress import ip_network

from policy.resources import CLUSTER, NETWORK, NODE_POOL, at, every, switched_on
from policy.rule import Declared, ResourceRule, Rule, Severity
from policy.rules.security.about import must

SERVICE = "kubernetes:core/v1:Service"
_ROUTED = ("kubernetes:networking.k8s.io/*:Ingress", "kubernetes:gateway.networking.k8s.io/*:Gateway")
_LARGEST_NETWORK_BITS = 8
"""Of a range that someone may own, such as 10.0.0.0/8; two of 1 bit are the whole internet."""
_FIREWALL = "gcp:compute/firewall:Firewall"
_OTHER_SOURCES = ("srcSecureTags", "srcAddressGroups", "srcNetworks")
"""Of a rule of a firewall policy, beside ranges."""
_INTERNAL = "networking.gke.io/load-balancer-type"
_HARDENING = "https://cloud.google.com/kubernetes-engine/docs/how-to/hardening-your-cluster"
_ISOLATION = "https://cloud.google.com/kubernetes-engine/docs/concepts/network-isolation"


def _control_plane(cluster: Declared) -> Iterator[str]:
    # GKE's default is an IP endpoint.
    endpoints = at(cluster.properties, "controlPlaneEndpointsConfig")
    by_address = switched_on(endpoints, "ipEndpointsConfig", "enabled", unsaid=True)
    private = at(cluster.properties, "privateClusterConfig", "enablePrivateEndpoint")
    if by_address and not private and at(cluster.properties, "masterAuthorizedNetworksConfig") is None:
        yield "expected the DNS endpoint alone or networks that may use the IP endpoint, got one for everyone"


def _authorized_networks(cluster: Declared) -> Iterator[str]:
    networks = at(cluster.properties, "masterAuthorizedNetworksConfig")
    for block in every(networks, "cidrBlocks"):
        if _is_everywhere(block["cidrBlock"]):
            yield f"expected networks that you know, got {block['cidrBlock']}"
    if at(networks, "gcpPublicCidrsAccessEnabled"):
        yield "expected gcpPublicCidrsAccessEnabled to be false, got every machine that is rented from Google Cloud"


def _is_everywhere(block: str) -> bool:
    return ip_network(block, strict=False).prefixlen < _LARGEST_NETWORK_BITS


def _sign_in(cluster: Declared) -> Iterator[str]:
    if at(cluster.properties, "enableLegacyAbac"):
        yield "expected RBAC alone, got enableLegacyAbac true"
    if at(cluster.properties, "masterAuth", "clientCertificateConfig", "issueClientCertificate"):
        yield "expected no client certificate, got issueClientCertificate true"
    for setting in ("enableK8sTokensViaDns", "enableK8sCertsViaDns"):
        if at(cluster.properties, "controlPlaneEndpointsConfig", "dnsEndpointConfig", setting):
            yield f"expected the DNS endpoint to know Google's sign-in alone, got {setting} true"


def _anonymous(cluster: Declared) -> Iterator[str]:
    mode = at(cluster.properties, "anonymousAuthenticationConfig", "mode")
    if mode != "LIMITED":
        yield f"expected anonymousAuthenticationConfig.mode LIMITED, got {mode}"


def _bindings(cluster: Declared) -> Iterator[str]:
    for who in ("Unauthenticated", "Authenticated"):
        setting = f"enableInsecureBindingSystem{who}"
        if switched_on(cluster.properties, "rbacBindingConfig", setting, unsaid=True):
            yield f"expected rbacBindingConfig.{setting} to be false, got nothing or true"


def _private_nodes(resource: Declared) -> Iterator[str]:
    config = "privateClusterConfig" if resource.type == CLUSTER else "networkConfig"
    if not switched_on(resource.properties, config, "enablePrivateNodes", unsaid=False):
        yield f"expected {config}.enablePrivateNodes to be true, got nothing or false"


def _firewall(rule: Declared) -> Iterator[str]:
    properties = rule.properties
    if (
        properties.get("direction", "INGRESS") != "INGRESS"
        or properties.get("disabled")
        or not properties.get("allows")
    ):
        return
    narrowed = any(properties.get(key) for key in ("sourceTags", "sourceServiceAccounts"))
    yield from _open(every(properties, "sourceRanges"), narrowed)


def _firewall_policy(rule: Declared) -> Iterator[str]:
    enters = [at(rule.properties, key) for key in ("direction", "action")] == ["INGRESS", "allow"]
    if enters and not at(rule.properties, "disabled"):
        match = at(rule.properties, "match")
        yield from _open(every(match, "srcIpRanges"), any(at(match, key) for key in _OTHER_SOURCES))


def _open(sources: list[str], narrowed: bool) -> Iterator[str]:
    if not sources and not narrowed:
        yield "expected sources that may come in, got none, which means everyone"
    for source in sources:
        if _is_everywhere(source):
            yield f"expected sources that you know, got {source}"


def _chosen_subnets(network: Declared) -> Iterator[str]:
    if switched_on(network.properties, "autoCreateSubnetworks", unsaid=True):
        yield "expected autoCreateSubnetworks to be false, got a subnetwork in every region"


def _google_access(subnetwork: Declared) -> Iterator[str]:
    if not subnetwork.properties.get("privateIpGoogleAccess"):
        yield "expected privateIpGoogleAccess to be true, got nothing or false"


def _exposed(resource: Declared) -> Iterator[str]:
    if resource.type != SERVICE:
        yield f"expected nothing in the cluster to be reached from outside, got a {resource.type.rpartition(':')[2]}"
        return
    kind = at(resource.properties, "spec", "type")
    annotations = at(resource.properties, "metadata", "annotations") or {}
    if kind == "NodePort" or (kind == "LoadBalancer" and annotations.get(_INTERNAL) != "Internal"):
        yield f"expected a Service within the cluster or an internal load balancer, got {kind}"


RULES: tuple[Rule, ...] = (
    ResourceRule(
        must(
            "control-plane-endpoint",
            Severity.HIGH,
            "Not everyone can try to sign in to the control plane",
            why="An open IP endpoint is one leaked credential or one bug of the API server away from a lost cluster.",
            fix="Leave cluster.authorized_networks empty for the DNS endpoint alone, or name your networks there.",
            link=_ISOLATION,
        ),
        (CLUSTER,),
        _control_plane,
    ),
    ResourceRule(
        must(
            "authorized-networks",
            Severity.HIGH,
            "Authorized networks are known ones",
            why="A list that holds everyone protects from nobody.",
            fix="Name the networks that you work from in cluster.authorized_networks of the stack file.",
            link="https://cloud.google.com/kubernetes-engine/docs/how-to/authorized-networks",
        ),
        (CLUSTER,),
        _authorized_networks,
    ),
    ResourceRule(
        must(
            "no-legacy-authentication",
            Severity.HIGH,
            "One signs in to the control plane through Google alone",
            why="A client certificate cannot be revoked, and ABAC gives rights that RBAC does not show.",
            fix="Remove enableLegacyAbac, masterAuth, enableK8sTokensViaDns and enableK8sCertsViaDns.",
            link=_HARDENING,
        ),
        (CLUSTER,),
        _sign_in,
    ),
    ResourceRule(
        must(
            "no-anonymous-access",
            Severity.MEDIUM,
            "Without signing in one sees the health of the control plane alone",
            why="A wrong binding would otherwise open the API to callers without any credential.",
            fix="Set anonymousAuthenticationConfig.mode to LIMITED.",
            link=_HARDENING + "#restrict-anon-access",
        ),
        (CLUSTER,),
        _anonymous,
    ),
    ResourceRule(
        must(
            "no-bindings-for-everyone",
            Severity.MEDIUM,
            "The control plane refuses bindings for everyone",
            why="Every Google account in the world is authenticated: such a binding is a public one.",
            fix="Set both switches of rbacBindingConfig to false.",
            link="https://cloud.google.com/kubernetes-engine/docs/best-practices/rbac#default-roles-groups",
        ),
        (CLUSTER,),
        _bindings,
    ),
    ResourceRule(
        must(
            "private-nodes",
            Severity.HIGH,
            "Nodes have no public addresses",
            why="A public address makes every port that a node opens by mistake one for the internet.",
            fix="Set enablePrivateNodes on the cluster and on every pool.",
            link=_ISOLATION,
        ),
        (CLUSTER, NODE_POOL),
        _private_nodes,
    ),
    ResourceRule(
        must(
            "no-open-firewall",
            Severity.CRITICAL,
            "No firewall rule lets everyone in",
            why="Hosts of a slice talk to each other without passwords.",
            fix="Name source ranges, tags or service accounts that you know.",
            link="https://cloud.google.com/firewall/docs/firewalls",
        ),
        (_FIREWALL, "gcp:compute/*irewallPolicyRule:*"),
        lambda rule: _firewall(rule) if rule.type == _FIREWALL else _firewall_policy(rule),
    ),
    ResourceRule(
        must(
            "chosen-subnetworks",
            Severity.MEDIUM,
            "A network has the subnetworks that the program declares",
            why="Subnetworks in every region overlap with those of other networks and hold what nobody looks at.",
            fix="Set autoCreateSubnetworks to false.",
            link="https://cloud.google.com/vpc/docs/subnets#subnet-types",
        ),
        (NETWORK,),
        _chosen_subnets,
    ),
    ResourceRule(
        must(
            "private-google-access",
            Severity.MEDIUM,
            "Private nodes reach Google's APIs without the internet",
            why="Checkpoints and images would otherwise take the way through NAT, where there is one.",
            fix="Set privateIpGoogleAccess on the subnetwork.",
            link="https://cloud.google.com/vpc/docs/private-google-access",
        ),
        ("gcp:compute/subnetwork:Subnetwork",),
        _google_access,
    ),
    ResourceRule(
        must(
            "no-public-services",
            Severity.HIGH,
            "Nothing in the cluster is reached from outside",
            why="Nothing that trains has to be, and a load balancer's firewall rules outlive the cluster.",
            fix="Use a ClusterIP and `kubectl port-forward`, or an internal load balancer.",
            link="https://cloud.google.com/kubernetes-engine/docs/how-to/internal-load-balancing",
        ),
        (SERVICE, *_ROUTED),
        _exposed,
    ),
)
