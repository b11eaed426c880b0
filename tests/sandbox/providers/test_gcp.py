from pathlib import Path

import pytest

from infra.cluster.kubernetes import Json
from infra.stack.names import OFFLINE
from sandbox.providers.cloud import CLUSTER, NODE_POOL, RESOURCE_POLICY, Cloud
from sandbox.providers.gcp import GcpPlugin
from sandbox.providers.plugin import Diff, Refusal, Resource
from sandbox.providers.values import UNKNOWN, Secret, merge
from sandbox.site import Site

ACCOUNT = "gcp:serviceaccount/account:Account"
DNS = {"endpoint": "127.64.0.1:6443"}
NETWORK = "gcp:compute/network:Network"
SEED = b"\x01\x02\x03\x04\x05"


def urn(resource_type: str, name: str = "thing") -> str:
    return f"urn:pulumi:dev::project::component:Parent${resource_type}::{name}"


@pytest.fixture
def plugin(tmp_path: Path) -> GcpPlugin:
    plugin = GcpPlugin(Site(tmp_path, 64))
    plugin.config = {"project": "my-project", "region": "us-east5"}
    return plugin


def start(folder: Path) -> None:
    """Leave what the first start of a sandbox leaves."""
    (folder / "pki").mkdir()
    (folder / "pki" / "ca.crt").touch()


def created(plugin: GcpPlugin, resource_type: str, inputs: Json) -> Resource:
    resource_id, state = plugin.create(urn(resource_type), inputs, 0, preview=False)
    return Resource(urn(resource_type), resource_id, inputs, state)


def test_a_resource_without_a_name_is_named_and_keeps_it(plugin: GcpPlugin) -> None:
    named = plugin.check(urn(NETWORK, "net"), {}, {}, SEED)
    assert named == {"name": "net-0102030"}
    assert plugin.check(urn(NETWORK, "net"), named, {}, b"other") == named
    assert plugin.check(urn(NETWORK, "net"), named, {"name": "mine"}, SEED) == {"name": "mine"}


def test_what_the_cloud_computes_is_unknown_in_a_preview_and_known_after(plugin: GcpPlugin) -> None:
    inputs = {"accountId": "nodes"}
    resource_id, planned = plugin.create(urn(ACCOUNT), inputs, 0, preview=True)
    assert resource_id == ""
    assert planned["email"] == UNKNOWN
    account = created(plugin, ACCOUNT, inputs)
    assert account.state["email"] == "nodes@my-project.iam.gserviceaccount.com"
    assert account.state["member"] == f"serviceAccount:{account.state['email']}"
    assert account.id == f"projects/my-project/serviceAccounts/{account.state['email']}"


def test_a_secret_input_stays_secret_in_the_state_and_a_second_resource_of_the_same_id_is_refused(
    plugin: GcpPlugin,
) -> None:
    network = created(plugin, NETWORK, {"name": "net", "description": Secret("hidden")})
    assert network.state["description"] == Secret("hidden")
    with pytest.raises(Refusal, match="Error 409: Already exists: projects/my-project/global/networks/net"):
        created(plugin, NETWORK, {"name": "net"})


def test_reads_and_imports_answer_from_the_folder_and_miss_what_was_removed(plugin: GcpPlugin, tmp_path: Path) -> None:
    network = created(plugin, NETWORK, {"name": "net", "mtu": 8896})
    assert plugin.read(network) == (network.inputs, network.state)
    imported = plugin.read(Resource(network.urn, network.id, {}, {}))
    assert imported is not None
    assert imported[0] == network.inputs
    (file,) = (tmp_path / "cloud").iterdir()
    file.write_text(file.read_text().replace("8896", "1460"))
    found = plugin.read(network)
    assert found is not None
    assert found[0] == {"name": "net", "mtu": 1460}
    file.unlink()
    assert plugin.read(network) is None


def pool(state: Json | None = None) -> Resource:
    inputs = {"name": "s", "cluster": "c", "nodeCount": 4, "placementPolicy": {"type": "COMPACT", "tpuTopology": "4x4"}}
    return Resource(urn(NODE_POOL), "id", inputs, merge({"version": "1"} | inputs, state or {}))


def diff(plugin: GcpPlugin, old: Resource, change: Json) -> Diff:
    return plugin.diff(old, merge(old.inputs, change))


def test_a_new_topology_without_another_change_is_an_update_that_shows_every_time(plugin: GcpPlugin) -> None:
    change = {"placementPolicy": {"tpuTopology": "4x8"}}
    first = diff(plugin, pool(), change)
    assert [found.path for found in first.changes] == ["placementPolicy.tpuTopology"]
    assert not first.replaces
    # After the update the inputs hold the new value, the state what the API still says.
    after = Resource(urn(NODE_POOL), "id", merge(pool().inputs, change), pool().state)
    assert [found.path for found in plugin.diff(after, after.inputs).changes] == ["placementPolicy.tpuTopology"]


def test_a_computed_value_is_no_difference_and_a_removed_input_is(plugin: GcpPlugin) -> None:
    assert not diff(plugin, pool(), {"version": "1"}).changes
    without_placement = {key: item for key, item in pool().inputs.items() if key != "placementPolicy"}
    assert [found.path for found in plugin.diff(pool(), without_placement).changes] == ["placementPolicy"]


def test_what_the_program_no_longer_says_stays_where_the_cloud_or_the_plugin_keeps_it(plugin: GcpPlugin) -> None:
    before = {"name": "c", "location": "us-east5", "datapathProvider": "ADVANCED_DATAPATH"}
    cluster = Resource(urn(CLUSTER), "id", before, merge({"deletionProtection": False}, before))
    inputs = {"name": "c", "location": "us-east5", "resourceLabels": {"team": "a"}}
    state = plugin.update(cluster, inputs, 0, preview=False)
    assert state["datapathProvider"] == "ADVANCED_DATAPATH"
    assert state["resourceLabels"] == {"team": "a"}
    after = Resource(cluster.urn, cluster.id, inputs, state)
    removed = {"name": "c", "location": "us-east5"}
    assert "resourceLabels" not in plugin.update(after, removed, 0, preview=False)


def test_a_pool_with_a_workload_policy_has_no_placement_type(plugin: GcpPlugin, tmp_path: Path) -> None:
    created(plugin, RESOURCE_POLICY, {"name": "policy", "workloadPolicy": {"acceleratorTopology": "2x2x4"}})
    Cloud(tmp_path / "cloud").keep(CLUSTER, "id", {"name": "c", "location": "us-east5"})
    inputs = {
        "name": "s",
        "cluster": "c",
        "location": "us-east5",
        "nodeLocations": ["us-east5-a"],
        "autoscaling": {"minNodeCount": 0, "maxNodeCount": 4},
        "nodeConfig": {"machineType": "tpu7x-standard-4t", "flexStart": True},
        "placementPolicy": {"type": "COMPACT", "policyName": "policy", "tpuTopology": "2x2x4"},
    }
    made = created(plugin, NODE_POOL, inputs)
    assert [found.path for found in plugin.diff(made, inputs).changes] == ["placementPolicy.type"]
    assert not plugin.diff(made, merge(inputs, {"placementPolicy": {"type": ""}})).changes


def test_an_existing_cluster_has_the_form_of_the_data_source_and_a_missing_one_is_an_error(
    plugin: GcpPlugin, tmp_path: Path
) -> None:
    start(tmp_path)
    record = {"name": "c", "resourceLabels": {"team": "a"}, "controlPlaneEndpointsConfig": {"dnsEndpointConfig": DNS}}
    Cloud(tmp_path / "cloud").keep(CLUSTER, "projects/my-project/locations/us-east5/clusters/c", record)
    found = plugin.invoke("gcp:container/getCluster:getCluster", {"name": "c", "location": "us-east5"})
    assert found["controlPlaneEndpointsConfigs"] == [{"dnsEndpointConfigs": [DNS]}]
    assert found["resourceLabels"] == {"team": "a"}
    with pytest.raises(Refusal, match="^projects/other/locations/us-east5/clusters/c not found$"):
        plugin.invoke("gcp:container/getCluster:getCluster", {"name": "c", "project": "other"})


def test_an_existing_cluster_shows_its_node_pools_and_the_addresses_of_its_pods(
    plugin: GcpPlugin, tmp_path: Path
) -> None:
    start(tmp_path)
    ranges = [{"rangeName": "pods", "ipCidrRange": "10.32.0.0/14"}]
    declared = {"name": "nodes", "region": "us-east5", "ipCidrRange": "10.5.0.0/20", "secondaryIpRanges": ranges}
    subnet = created(plugin, "gcp:compute/subnetwork:Subnetwork", declared)
    cloud = Cloud(tmp_path / "cloud")
    record = {"name": "c", "subnetwork": subnet.id, "ipAllocationPolicy": {"clusterSecondaryRangeName": "pods"}}
    cloud.keep(CLUSTER, "projects/my-project/locations/us-east5/clusters/c", record)
    cloud.keep(NODE_POOL, "id", {"name": "trillium-0", "cluster": "projects/my-project/locations/us-east5/clusters/c"})
    found = plugin.invoke("gcp:container/getCluster:getCluster", {"name": "c", "location": "us-east5"})
    assert (found["clusterIpv4Cidr"], found["nodePools"]) == ("10.32.0.0/14", [{"name": "trillium-0"}])
    place = {"name": "nodes", "region": "us-east5"}
    found = plugin.invoke("gcp:compute/getSubnetwork:getSubnetwork", place)
    assert (found["ipCidrRange"], found["secondaryIpRanges"]) == ("10.5.0.0/20", ranges)
    with pytest.raises(Refusal, match="^projects/host/regions/us-east5/subnetworks/nodes not found$"):
        plugin.invoke("gcp:compute/getSubnetwork:getSubnetwork", {**place, "project": "host"})


def test_what_exists_already_is_only_missing_in_a_sandbox_that_was_started(plugin: GcpPlugin, tmp_path: Path) -> None:
    cluster, subnet = "gcp:container/getCluster:getCluster", "gcp:compute/getSubnetwork:getSubnetwork"
    for token, place in ((cluster, {"name": "c", "location": "us-east5"}), (subnet, {"name": "s"})):
        with pytest.raises(Refusal, match=OFFLINE):
            plugin.invoke(token, place)
    start(tmp_path)
    with pytest.raises(Refusal, match="not found$"):
        plugin.invoke(cluster, {"name": "c", "location": "us-east5"})


def test_a_wrong_pool_is_refused_in_a_preview_before_its_cluster_exists(plugin: GcpPlugin) -> None:
    inputs = pool().inputs | {
        "cluster": UNKNOWN,
        "nodeCount": 3,
        "nodeLocations": ["us-east5-a"],
        "nodeConfig": {"machineType": "ct6e-standard-4t"},
    }
    with pytest.raises(Refusal, match="gang mode of size '4'"):
        plugin.create(urn(NODE_POOL), inputs, 0, preview=True)


def test_a_protected_cluster_is_not_deleted_unless_it_is_gone_already(plugin: GcpPlugin, tmp_path: Path) -> None:
    record = {"name": "c", "deletionProtection": True}
    cluster = Resource(urn(CLUSTER), "id", {"name": "c"}, record)
    plugin.delete(cluster, 0)
    Cloud(tmp_path / "cloud").keep(CLUSTER, "id", record)
    with pytest.raises(Refusal, match="deletion_protection is set to true"):
        plugin.delete(cluster, 0)


def test_the_project_number_is_returned_and_other_functions_are_refused(plugin: GcpPlugin) -> None:
    found = plugin.invoke("gcp:organizations/getProject:getProject", {"projectId": "my-project"})
    assert found["number"].isdecimal()
    assert found == plugin.invoke("gcp:organizations/getProject:getProject", {})
    with pytest.raises(Refusal, match="no function gcp:compute/getZones:getZones"):
        plugin.invoke("gcp:compute/getZones:getZones", {})
