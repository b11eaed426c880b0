"""A stack comes up in an empty sandbox, and its job starts on slices of their own."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import psutil

from infra.stack.names import JOBSET_NAMESPACE, KUEUE_NAMESPACE
from tests.chain.shared import JOB
from tests.chain.stack import Chain, processes_of

REVISION = "deployment.kubernetes.io/revision"


def test_the_job_starts_on_slices_in_node_pools_of_their_own(stack: Chain):
    stack.wait_for_step(JOB, 1)
    pools = {
        node["metadata"]["name"]: node["metadata"]["labels"]["cloud.google.com/gke-nodepool"]
        for node in stack.objects("nodes")
    }
    pods = stack.pods(JOB)
    placed = {
        (pod["metadata"]["labels"]["jobset.sigs.k8s.io/job-index"], pools[pod["spec"]["nodeName"]]) for pod in pods
    }
    assert len(pods) == 4
    assert len(placed) == len({pool for _, pool in placed}) == 2


def test_the_operators_have_what_the_published_kubernetes_plugin_waits_for(stack: Chain):
    for namespace in (JOBSET_NAMESPACE, KUEUE_NAMESPACE):
        (deployment,) = [each for each in stack.objects("deployments") if each["metadata"]["namespace"] == namespace]
        revision = deployment["metadata"]["annotations"][REVISION]
        path = f"/apis/apps/v1/namespaces/{namespace}/replicasets/{deployment['metadata']['name']}-{revision}"
        replica_set = stack.api.request("GET", path)
        assert replica_set["metadata"]["annotations"] == {REVISION: revision}
        assert replica_set["metadata"]["ownerReferences"][0]["uid"] == deployment["metadata"]["uid"]
        assert replica_set["status"]["readyReplicas"] == deployment["spec"]["replicas"]
        for service in stack.api.request("GET", f"/api/v1/namespaces/{namespace}/services")["items"]:
            endpoints = stack.api.request(
                "GET", f"/api/v1/namespaces/{namespace}/endpoints/{service['metadata']['name']}"
            )
            assert endpoints["subsets"][0]["addresses"]


def test_no_credential_is_in_clear_in_the_state(stack: Chain):
    key = (stack.site.pki / "admin.key").read_text().splitlines()[1]
    token = (stack.site.pki / "admin.token").read_text()
    for state in (stack.site.root / "state").rglob("*.json"):
        assert key not in state.read_text()
        assert token not in state.read_text()


def test_nothing_of_the_sandbox_and_its_hosts_listens_beyond_loopback(stack: Chain):
    hosts = [psutil.Process(stack.trainer_pid(f"{JOB}-slice-{number}-{host}")) for number in (0, 1) for host in (0, 1)]
    listening = _listened_on([*processes_of(stack.site), *hosts])
    assert len(listening) > 5
    assert [address for address, _ in listening if not address.is_loopback] == []


def test_an_ordinary_user_may_listen_on_every_port_of_the_sandbox(stack: Chain):
    ports = [port for _, port in _listened_on(processes_of(stack.site))]
    assert ports.count(stack.site.webhook_port) == len((JOBSET_NAMESPACE, KUEUE_NAMESPACE))
    assert [port for port in ports if port < 1024] == []


def _listened_on(processes: list[psutil.Process]) -> list[tuple[IPv4Address | IPv6Address, int]]:
    connections = [connection for process in processes for connection in process.net_connections()]
    listening = [connection for connection in connections if connection.status == psutil.CONN_LISTEN]
    return [(ip_address(connection.laddr.ip), connection.laddr.port) for connection in listening]
