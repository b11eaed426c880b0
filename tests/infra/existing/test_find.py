"""What the program asks of a cluster or a network that exists already, and what it declares there."""

from pathlib import Path
from typing import Any

import pytest

from infra.cluster.kubernetes import ApiError, ApiServer, Json
from infra.existing import find
from infra.existing.checks import PoolsNeeded
from infra.existing.claims import POOLS, claims
from infra.review.answers import answers
from infra.review.review import REVIEW_FILE, Review
from infra.stack.names import NODE_POOL_LABEL, OFFLINE
from infra.stack.settings.errors import SettingsError
from infra.stack.settings.read import parse
from infra.stack.settings.schema import ExistingCluster
from tests.infra.existing.test_controllers import SERVED, deployment
from tests.infra.existing.test_google import FITTING
from tests.infra.recording import Recording, Values, run_program, stack_values

GET_CLUSTER, GET_SUBNET = "gcp:container/getCluster:getCluster", "gcp:compute/getSubnetwork:getSubnetwork"
SUBNET = {
    "ipCidrRange": "10.60.0.0/20",
    "network": "projects/host/global/networks/corporate",
    "secondaryIpRanges": [
        {"rangeName": "a", "ipCidrRange": "10.64.0.0/14"},
        {"rangeName": "b", "ipCidrRange": "10.68.0.0/20"},
    ],
    "privateIpGoogleAccess": True,
}
GROUPS = [{"versions": [{"groupVersion": version}]} for version in SERVED]


class Server:
    """The API server of the cluster."""

    def __init__(self, **collections: list[Json]) -> None:
        self.collections = collections
        self.config: Json | ApiError | None = None
        """Answer about the configuration of JobSet."""

    def request(self, method: str, path: str, *, query: Any = None) -> Json:
        del method, query
        return {"groups": GROUPS, "items": self.collections.get(path.rpartition("/")[2], [])}

    def find(self, path: str) -> Json | None:
        if not path.startswith("/api/v1/namespaces/jobset-system/"):
            return None
        if isinstance(self.config, ApiError):
            raise self.config
        return self.config


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server(deployments=[deployment("jobset:v0.12.0", "jobset-system"), deployment("kueue:v0.19.2")])
    monkeypatch.setattr(ApiServer, "at", lambda endpoint: server)
    return server


def attached() -> Values:
    values: Any = stack_values("prod")
    values["cluster"] = {"name": "research", "existing": {"name": "shared", "location": "us-east5"}}
    return values


@pytest.fixture
def recording(server: Server) -> Recording:
    del server
    return run_program(attached(), answers={GET_CLUSTER: FITTING})


def test_no_network_no_cluster_and_no_controller_is_declared(recording: Recording) -> None:
    kinds = {each.type for each in recording.registrations}
    assert not kinds & {"gcp:container/cluster:Cluster", "kubernetes:helm.sh/v4:Chart"}
    assert not {kind for kind in kinds if kind.startswith("gcp:compute/")} - {
        "gcp:compute/resourcePolicy:ResourcePolicy"
    }
    pools = recording.of_type("gcp:container/nodePool:NodePool")
    assert {pool.inputs["cluster"] for pool in pools} == {"shared"}
    assert recording.exports["location"] == "us-east5"


def test_every_name_in_the_cluster_has_the_prefix_or_is_claimed(recording: Recording) -> None:
    settings = parse(attached())
    claimed = {claim.name for claim in claims(settings)}
    namespaces = {team.namespace for team in settings.teams.values()} | {"research-multislice-monitoring"}
    for each in recording.registrations:
        if each.type.startswith("kubernetes:"):
            metadata = each.inputs["metadata"]
            if "namespace" in metadata:
                assert metadata["namespace"] in namespaces
            else:
                assert metadata["name"].startswith("research-") or metadata["name"] in claimed, each.name
        elif each.type.startswith("gcp:container/nodePool"):
            assert each.inputs["name"] in {claim.name for claim in claims(settings) if claim.collection == POOLS}


def test_controllers_that_a_stack_installs_have_a_priority_of_its_name(server: Server) -> None:
    server.collections["deployments"] = []
    values = attached()
    values["cluster"]["existing"] |= {"jobset": "install", "kueue": "install"}
    recording = run_program(values, answers={GET_CLUSTER: FITTING})
    (priority,) = recording.of_type("kubernetes:scheduling.k8s.io/v1:PriorityClass")
    claimed = {claim.name for claim in claims(parse(values)) if claim.collection.endswith("/priorityclasses")}
    assert {priority.inputs["metadata"]["name"]} == claimed == {"research-controllers-of-jobs"}


def test_jobs_and_queues_refer_to_the_names_of_the_stack(recording: Recording) -> None:
    declared = {each.inputs["metadata"]["name"] for each in recording.registrations if "metadata" in each.inputs}
    for queue in recording.starting("kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue", "quota-"):
        assert queue.inputs["spec"]["cohortName"] in declared
        (group,) = queue.inputs["spec"]["resourceGroups"]
        assert group["coveredResources"] == ["google.com/tpu", "cpu", "memory"]
        assert {flavor["name"] for flavor in group["flavors"]} <= declared
    for job in recording.starting("kubernetes:jobset.x-k8s.io/v1alpha2:JobSet", "job-"):
        assert job.inputs["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] in declared
    for bound in recording.of_type("kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicyBinding"):
        assert bound.inputs["spec"]["policyName"] in declared


def test_everything_that_does_not_fit_is_reported_before_anything_is_declared(server: Server) -> None:
    server.collections = {"priorityclasses": [{"metadata": {"name": "everyone"}, "globalDefault": True}]}
    with pytest.raises(SettingsError) as raised:
        run_program(attached(), answers={GET_CLUSTER: FITTING | {"workloadIdentityConfigs": []}})
    assert [error.path for error in raised.value.errors] == [
        "cluster.existing",
        "cluster.existing.jobset",
        "cluster.existing.kueue",
        "cluster.existing",
    ]


def test_a_cluster_is_created_in_an_existing_shared_vpc() -> None:
    values: Any = stack_values("dev")
    network = {"project": "host", "network": "corporate", "subnet": "tpus", "pods": "a", "services": "b"}
    values["network"] = {"existing": network}
    recording = run_program(values, answers={GET_SUBNET: SUBNET})
    assert not [each for each in recording.registrations if each.type.startswith("gcp:compute/")]
    cluster = recording.named("gcp:container/cluster:Cluster", "cluster").inputs
    assert cluster["subnetwork"] == "projects/host/regions/us-east5/subnetworks/tpus"
    assert cluster["ipAllocationPolicy"] == {"clusterSecondaryRangeName": "a", "servicesSecondaryRangeName": "b"}
    policy = recording.starting("kubernetes:networking.k8s.io/v1:NetworkPolicy", "network-")[0].inputs
    (blocked,) = [
        to["ipBlock"]["except"]
        for rule in policy["spec"]["egress"]
        for to in rule["to"]
        if "except" in to.get("ipBlock", {})
    ]
    assert "10.64.0.0/14" in blocked


NETWORK = {"network": "corporate", "subnet": "tpus", "pods": "a", "services": "b"}


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("cluster.existing", attached()),
        ("network.existing", {**stack_values("dev"), "network": {"existing": NETWORK}}),
    ],
)
def test_offline_what_exists_already_is_assumed_to_fit_and_said_to_be_unchecked(
    section: str, values: Values, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "review.json"
    monkeypatch.setenv(REVIEW_FILE, str(file))
    recording = run_program(values, preview=True, answers=dict.fromkeys((GET_CLUSTER, GET_SUBNET), OFFLINE))
    assert recording.of_type("gcp:container/nodePool:NodePool")
    found = Review.model_validate_json(file.read_text())
    assert found.unchecked == section
    (told,) = [answer.verdict for answer in answers(found) if section in answer.verdict]
    assert "--engine pulumi" in told


def nodes(pool: str, count: int, **labels: str) -> list[Json]:
    return [{"metadata": {"labels": {NODE_POOL_LABEL: pool, **labels}}} for _ in range(count)]


def test_node_pools_that_exist_are_the_slices_of_the_group() -> None:
    wanted = PoolsNeeded(count=2, hosts=2, labels={"topology": "2x4"})
    cluster = ExistingCluster(name="shared", location="us-east5")

    def errors(*found: list[Json]) -> list[str]:
        every = [node for pool in found for node in pool]
        return [error.path for error in find.pool_errors("trillium", wanted, every, cluster)]

    right = nodes("a", 2, topology="2x4")
    assert not errors(right, nodes("b", 1, topology="2x4"))
    assert errors(right) == ["slices.trillium.count"]
    assert errors(right, nodes("b", 2, topology="4x4")) == ["slices.trillium"]
    assert errors(right, nodes("b", 3, topology="2x4")) == ["slices.trillium"]
