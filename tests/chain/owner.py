"""Another program, which makes a network, a cluster, JobSet, a Kueue of its own and a queue, and knows no stack."""

from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as kubernetes
import yaml

from infra.cluster.kubernetes import ApiServer, Json
from infra.objects import KubernetesObject, kubernetes_provider
from infra.operators import leave_certificates, wait_for_certificates
from infra.stack.controllers import JOBSET, KUEUE, Release
from infra.stack.manifests import manifest
from infra.stack.names import KUEUE_API_VERSION
from sandbox.engine import stack_in
from sandbox.providers.installation import install
from tests.chain.stack import Chain

CLUSTER, TEAM = "shared", "corporate"
PROJECT, REGION, ZONE = "sandbox", "us-east5", "us-east5-b"
CONFIGURATION: Json = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "health": {"healthProbeBindAddress": ":8081"},
    "webhook": {"port": 9443},
    "integrations": {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset"]},
    "waitForPodsReady": {"timeout": "25m"},
}
"""Unlike that of a stack: it counts CPU and memory, and does not hold back jobs without a queue."""
_KINDS = (
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/rolebindings",
    "/apis/apps/v1/deployments",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/api/v1/configmaps",
    "/api/v1/secrets",
    "/api/v1/services",
    "/api/v1/serviceaccounts",
    "/api/v1/namespaces",
    f"/apis/{KUEUE_API_VERSION}/clusterqueues",
    f"/apis/{KUEUE_API_VERSION}/localqueues",
    f"/apis/{KUEUE_API_VERSION}/resourceflavors",
    f"/apis/{KUEUE_API_VERSION}/workloadpriorityclasses",
    f"/apis/{KUEUE_API_VERSION}/cohorts",
    f"/apis/{KUEUE_API_VERSION}/topologies",
    f"/apis/{KUEUE_API_VERSION}/workloads",
    "/apis/jobset.x-k8s.io/v1alpha2/jobsets",
)
"""Kinds of which a stack has objects, or whose objects it could change."""


@dataclass(frozen=True)
class Owner:
    """The program. It is run as a stack of its own in the same sandbox."""

    chain: Chain

    def up(self) -> None:
        install(self.chain.site)
        stack_in(self.chain.site, self.chain.programs, "owner", self).up()

    def __call__(self) -> None:
        provider = gcp.Provider("google", project=PROJECT, region=REGION, zone=ZONE)
        on_google = pulumi.ResourceOptions(provider=provider)
        cluster = _cluster(on_google)
        endpoint = cluster.control_plane_endpoints_config.apply(
            lambda found: str(found.dns_endpoint_config and found.dns_endpoint_config.endpoint)
        )
        inside = kubernetes_provider("inside", endpoint, pulumi.ResourceOptions(depends_on=[cluster]))
        options = pulumi.ResourceOptions(provider=inside)
        jobset = _controller(JOBSET, {}, options, [])
        text = yaml.safe_dump(CONFIGURATION)
        kueue = _controller(KUEUE, {"managerConfig": {"controllerManagerConfigYaml": text}}, options, [jobset])
        _queue(pulumi.ResourceOptions(provider=inside, depends_on=[kueue]))

    def possessions(self, api: ApiServer) -> dict[str, Json]:
        """All objects in the cluster by path, whole, and all records of the sandbox's Google Cloud by file."""
        found: dict[str, Json] = {}
        for kind in _KINDS:
            for item in api.request("GET", kind)["items"]:
                metadata = item["metadata"]
                found[f"{kind} {metadata.get('namespace', '')}/{metadata['name']}"] = item
        for node in api.request("GET", "/api/v1/nodes")["items"]:
            # The kubelet renews the status.
            metadata = {key: node["metadata"].get(key) for key in ("uid", "labels", "annotations")}
            found[f"node {node['metadata']['name']}"] = {"metadata": metadata, "spec": node["spec"]}
        return found | {path.name: {"text": path.read_text()} for path in self.chain.site.cloud.glob("*.json")}


def _cluster(options: pulumi.ResourceOptions) -> gcp.container.Cluster:
    network = gcp.compute.Network("net", name="corporate", auto_create_subnetworks=False, opts=options)
    ranges = {"a": "10.64.0.0/14", "b": "10.68.0.0/20"}
    subnet = gcp.compute.Subnetwork(
        "subnet",
        name="corporate-nodes",
        network=network.id,
        region=REGION,
        ip_cidr_range="10.60.0.0/20",
        secondary_ip_ranges=[{"range_name": name, "ip_cidr_range": cidr} for name, cidr in ranges.items()],
        private_ip_google_access=True,
        opts=options,
    )
    dns: Any = {"dns_endpoint_config": {"allow_external_traffic": True}}
    cluster = gcp.container.Cluster(
        "cluster",
        name=CLUSTER,
        location=REGION,
        node_locations=[ZONE],
        initial_node_count=1,
        remove_default_node_pool=True,
        network=network.id,
        subnetwork=subnet.id,
        datapath_provider="ADVANCED_DATAPATH",
        ip_allocation_policy={"cluster_secondary_range_name": "a", "services_secondary_range_name": "b"},
        workload_identity_config={"workload_pool": f"{PROJECT}.svc.id.goog"},
        control_plane_endpoints_config=dns,
        monitoring_config={"enable_components": ["SYSTEM_COMPONENTS"], "managed_prometheus": {"enabled": True}},
        private_cluster_config={"enable_private_nodes": True},
        opts=options,
    )
    pool = gcp.container.NodePoolNodeConfigArgs(machine_type="e2-standard-4")
    gcp.container.NodePool(
        "pool", name="default-pool", cluster=cluster.id, node_count=1, node_config=pool, opts=options
    )
    return cluster


def _controller(
    release: Release, values: Json, options: pulumi.ResourceOptions, after: list[pulumi.Resource]
) -> kubernetes.helm.v4.Chart:
    namespace = f"{release.name}-system"
    place = kubernetes.core.v1.Namespace(namespace, metadata={"name": namespace}, opts=options)
    own = pulumi.ResourceOptions(depends_on=[place, *after], transforms=[wait_for_certificates, leave_certificates])
    return kubernetes.helm.v4.Chart(
        release.name,
        chart=release.chart,
        version=release.version,
        namespace=namespace,
        values=values,
        opts=pulumi.ResourceOptions.merge(options, own),
    )


def _queue(options: pulumi.ResourceOptions) -> None:
    quota = {"name": "cpu", "nominalQuota": "4"}
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "machines", "resources": [quota]}]}]
    objects = {
        "flavor": manifest(KUEUE_API_VERSION, "ResourceFlavor", "machines", spec={}),
        "priority": manifest(KUEUE_API_VERSION, "WorkloadPriorityClass", "high", value=7, description="theirs"),
        "namespace": manifest("v1", "Namespace", TEAM),
        "queue": manifest(
            KUEUE_API_VERSION, "ClusterQueue", TEAM, spec={"namespaceSelector": {}, "resourceGroups": groups}
        ),
        "local": manifest(KUEUE_API_VERSION, "LocalQueue", TEAM, TEAM, spec={"clusterQueue": TEAM}),
    }
    declared: list[pulumi.Resource] = []
    for name, rendered in objects.items():
        after = pulumi.ResourceOptions(depends_on=declared[-1:])
        declared.append(KubernetesObject(name, rendered, pulumi.ResourceOptions.merge(options, after)))
