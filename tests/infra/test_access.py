"""What members may do, and what pods reach."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from infra.access import network_policy
from infra.settings.schema import Network
from tests.infra.recording import Recording, Values, run_program
from workloads.spec import METRICS_PORT

RBAC = "kubernetes:rbac.authorization.k8s.io/v1"


def test_each_member_is_bound_to_the_role_of_the_namespace(program: Recording) -> None:
    inputs: Any = program.named(f"{RBAC}:RoleBinding", "members-research-binding").inputs
    assert inputs["metadata"]["namespace"] == "research"
    assert [(subject["kind"], subject["name"]) for subject in inputs["subjects"]] == [
        ("User", "ada@example.com"),
        ("User", "trainer@my-project.iam.gserviceaccount.com"),
        ("Group", "research@example.com"),
    ]
    role = program.named(f"{RBAC}:Role", "members-research").inputs
    assert role["metadata"] == inputs["metadata"]
    assert inputs["roleRef"]["name"] == role["metadata"]["name"]


def test_a_team_without_members_has_no_binding(values: Values) -> None:
    bindings: Any = [found.inputs for found in run_program(values).of_type(f"{RBAC}:RoleBinding")]
    assert {subject["kind"] for binding in bindings for subject in binding["subjects"]} == {"ServiceAccount"}


def test_nothing_of_the_stack_gives_people_rights_in_the_whole_cluster(program: Recording) -> None:
    rights = [found for found in program.registrations if ":ClusterRole" in found.type]
    # Trainers mark their own node; an admission policy holds them to that.
    # Of collectors an account reads the controllers' metrics, see tests/infra/monitoring/test_collection.py.
    readers = {f"{name}-metrics-reader-of-collectors" for name in ("jobset", "kueue")}
    assert {found.inputs["metadata"]["name"] for found in rights} == {"trainer-marks-bad-host", *readers}
    subjects = [subject for found in rights for subject in found.inputs.get("subjects", ())]
    accounts = {(subject["kind"], subject["name"]) for subject in subjects}
    assert accounts == {("ServiceAccount", "trainer"), ("ServiceAccount", "metrics-reader")}


def test_an_account_of_trainers_mounts_its_token_nowhere_unasked(program: Recording) -> None:
    accounts = program.of_type("kubernetes:core/v1:ServiceAccount")
    assert {account.inputs["metadata"]["name"] for account in accounts} == {"trainer", "metrics-reader"}
    assert all(account.inputs["automountServiceAccountToken"] is False for account in accounts)


def test_gke_asks_google_who_is_in_a_group_where_there_is_one_of_all_teams(program: Recording, values: Values) -> None:
    def groups(recording: Recording) -> Any:
        return recording.named("gcp:container/cluster:Cluster", "cluster").inputs.get("authenticatorGroupsConfig")

    assert groups(program) == {"securityGroup": "gke-security-groups@example.com"}
    assert groups(run_program(values)) is None


NETWORK = Network()


@dataclass(frozen=True)
class Peer:
    """One end of a connection, as a policy sees it: a pod, or an address that is no pod's."""

    address: str
    namespace: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


TRAINER = Peer("10.16.0.5", "research", {"jobset.sigs.k8s.io/jobset-name": "tiny"})
OTHER_HOST = Peer("10.16.1.5", "research")
OTHER_TEAM = Peer("10.16.2.5", "product-ml", {"jobset.sigs.k8s.io/jobset-name": "tiny"})
KUEUE = Peer("10.16.3.5", "kueue-system")
KUBE_DNS = Peer("10.16.3.6", "kube-system", {"k8s-app": "kube-dns"})
DNS_CACHE = Peer("10.16.3.7", "kube-system", {"k8s-app": "node-local-dns"})
METRICS_SERVER = Peer("10.16.3.8", "kube-system", {"k8s-app": "metrics-server"})
CACHE_ADDRESS = Peer("169.254.20.10")
METADATA = Peer("169.254.169.254")
COLLECTOR = Peer("10.16.3.9", "gmp-system", {"app.kubernetes.io/name": "collector"})
RULE_EVALUATOR = Peer("10.16.3.10", "gmp-system", {"app.kubernetes.io/name": "rule-evaluator"})
API_SERVER = Peer("10.0.0.2")
"""GKE's control plane has an address of the nodes' range."""
GOOGLE = Peer("142.250.80.10")
PRIVATE_GOOGLE = Peer("199.36.153.8")


def _reaches(peer: Peer, port: int, protocol: str = "TCP") -> bool:
    return _lets_through("egress", "to", peer, port, protocol)


def _reached_by(peer: Peer, port: int, *, monitored: bool = True) -> bool:
    return _lets_through("ingress", "from", peer, port, "TCP", monitored=monitored)


def _lets_through(direction: str, side: str, peer: Peer, port: int, protocol: str, *, monitored: bool = True) -> bool:
    """As https://kubernetes.io/docs/concepts/services-networking/network-policies/ says it."""
    spec: Any = network_policy("research", NETWORK, monitored=monitored)["spec"]
    assert direction.title() in spec["policyTypes"]
    return any(
        any(_is(selector, peer) for selector in rule[side])
        and ("ports" not in rule or {"protocol": protocol, "port": port} in rule["ports"])
        for rule in spec[direction]
    )


def _is(selector: Any, peer: Peer) -> bool:
    if block := selector.get("ipBlock"):
        # Dataplane V2 knows pods by their labels alone; where they were known by address, it would be this.
        inside = ip_address(peer.address) in ip_network(block["cidr"])
        return inside and not any(ip_address(peer.address) in ip_network(cidr) for cidr in block.get("except", ()))
    if peer.namespace is None:
        return False
    wanted = selector.get("namespaceSelector", {"matchLabels": {"kubernetes.io/metadata.name": "research"}})
    in_namespace = wanted["matchLabels"].items() <= {"kubernetes.io/metadata.name": peer.namespace}.items()
    return in_namespace and all(_labelled(selector["podSelector"], peer))


def _labelled(selector: Any, peer: Peer) -> Iterator[bool]:
    yield selector.get("matchLabels", {}).items() <= peer.labels.items()
    for expression in selector.get("matchExpressions", ()):
        assert expression["operator"] == "In"
        yield peer.labels.get(expression["key"]) in expression["values"]


@pytest.mark.parametrize("port", [8482, 8471, 8080, 8476, 40_000], ids=str)
def test_hosts_of_a_team_reach_each_other_on_every_port(port: int) -> None:
    assert _reaches(OTHER_HOST, port)
    assert _reached_by(OTHER_HOST, port)


@pytest.mark.parametrize("peer", [OTHER_TEAM, KUEUE, KUBE_DNS, API_SERVER, GOOGLE, METADATA], ids=lambda it: it.address)
@pytest.mark.parametrize("port", [8482, 8431, 443], ids=str)
def test_no_other_pods_reach_them(peer: Peer, port: int) -> None:
    assert not _reached_by(peer, port)


def test_only_collectors_reach_only_the_port_for_metrics() -> None:
    assert _reached_by(COLLECTOR, METRICS_PORT)
    assert not any(_reached_by(COLLECTOR, port) for port in (8482, 8431, 443))
    assert not any(_reached_by(peer, METRICS_PORT) for peer in (RULE_EVALUATOR, OTHER_TEAM, KUEUE))
    assert not _reached_by(COLLECTOR, METRICS_PORT, monitored=False)


@pytest.mark.parametrize("port", [8482, 443, 80, 53], ids=str)
def test_they_reach_no_other_pods_of_the_cluster(port: int) -> None:
    assert not any(_reaches(peer, port) for peer in (OTHER_TEAM, KUEUE, METRICS_SERVER))


@pytest.mark.parametrize("resolver", [KUBE_DNS, DNS_CACHE, CACHE_ADDRESS, METADATA], ids=lambda it: it.address)
def test_names_are_resolved_whichever_dns_the_cluster_has(resolver: Peer) -> None:
    assert _reaches(resolver, 53, "UDP")
    assert _reaches(resolver, 53, "TCP")


def test_they_get_their_google_identity() -> None:
    assert _reaches(METADATA, 80)
    assert _reaches(METADATA, 8080)


def test_they_reach_googles_apis_and_the_api_server_and_of_nodes_nothing_else() -> None:
    assert all(_reaches(peer, 443) for peer in (GOOGLE, PRIVATE_GOOGLE, API_SERVER))
    assert not any(_reaches(API_SERVER, port) for port in (22, 10250, 10255, 8482))
    assert not any(_reaches(GOOGLE, port) for port in (22, 80, 8482))


def test_of_the_second_network_pods_reach_nothing() -> None:
    assert not _reaches(Peer("10.2.0.9"), 443)
