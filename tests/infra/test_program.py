"""The graph that the program declares: what waits for what, what is kept, what is replaced."""

import json
from typing import Any

import pulumi
import pytest

from infra.borders import PRIORITIES, TRAINERS
from infra.operators import JOBSET, KUEUE, leave_certificates, prefer_controllers, wait_for_certificates
from infra.slices import REPLACED_BY_US
from tests.infra.recording import DNS_ENDPOINT, Recording, Values, run_program
from tests.infra.review.known import own

CLUSTER = ("gcp:container/cluster:Cluster", "cluster")
SYSTEM_POOL = ("gcp:container/nodePool:NodePool", "cluster-system")
SLICE = ("gcp:container/nodePool:NodePool", "slices-trillium-0")
JOBSET_CHART = ("kubernetes:helm.sh/v4:Chart", "jobset")
KUEUE_CHART = ("kubernetes:helm.sh/v4:Chart", "kueue")
FLAVOR = ("kubernetes:kueue.x-k8s.io/v1beta2:ResourceFlavor", "flavor-trillium")
CLUSTER_QUEUE = ("kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue", "quota-research")
LOCAL_QUEUE = ("kubernetes:kueue.x-k8s.io/v1beta2:LocalQueue", "queue-research")
NETWORK_POLICY = ("kubernetes:networking.k8s.io/v1:NetworkPolicy", "network-research")
MEMBERS = ("kubernetes:rbac.authorization.k8s.io/v1:RoleBinding", "members-research-binding")
ADMISSION = "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy"
BAD_HOST_ROLE = ("kubernetes:rbac.authorization.k8s.io/v1:ClusterRoleBinding", "bad-host-role-binding")
JOB = ("kubernetes:jobset.x-k8s.io/v1alpha2:JobSet", "job-ablation")


@pytest.mark.parametrize(
    ("later", "earlier"),
    [
        (CLUSTER, ("gcp:compute/subnetwork:Subnetwork", "network-nodes")),
        (CLUSTER, ("gcp:compute/routerNat:RouterNat", "network-nat")),
        (CLUSTER, ("gcp:projects/service:Service", "apis-container")),
        (CLUSTER, ("gcp:projects/iAMMember:IAMMember", "nodes-role")),
        (JOBSET_CHART, SYSTEM_POOL),
        (JOBSET_CHART, ("kubernetes:core/v1:Namespace", "jobset-system")),
        (KUEUE_CHART, ("kubernetes:core/v1:Namespace", "kueue-system")),
        (KUEUE_CHART, JOBSET_CHART),
        (FLAVOR, KUEUE_CHART),
        (CLUSTER_QUEUE, FLAVOR),
        (CLUSTER_QUEUE, ("kubernetes:kueue.x-k8s.io/v1beta2:Cohort", "cohort")),
        (("kubernetes:core/v1:Namespace", "namespace-research"), CLUSTER_QUEUE),
        (LOCAL_QUEUE, ("kubernetes:core/v1:Namespace", "namespace-research")),
        (LOCAL_QUEUE, NETWORK_POLICY),
        (LOCAL_QUEUE, ("kubernetes:core/v1:ResourceQuota", "no-pod-priority-research")),
        (MEMBERS, NETWORK_POLICY),
        (MEMBERS, ("kubernetes:core/v1:ResourceQuota", "no-pod-priority-research")),
        *((MEMBERS, (f"{ADMISSION}Binding", f"{name}-binding")) for name in (TRAINERS, PRIORITIES)),
        (BAD_HOST_ROLE, (f"{ADMISSION}Binding", f"{TRAINERS}-binding")),
        (BAD_HOST_ROLE, (f"{ADMISSION}Binding", "bad-host-policy-binding")),
        (
            ("kubernetes:core/v1:ServiceAccount", "trainer-research"),
            ("kubernetes:core/v1:Namespace", "namespace-research"),
        ),
        (JOB, LOCAL_QUEUE),
        (JOB, SLICE),
        (JOB, ("kubernetes:core/v1:ServiceAccount", "trainer-research")),
        (JOB, ("kubernetes:kueue.x-k8s.io/v1beta2:WorkloadPriorityClass", "priority-high")),
        (JOB, ("gcp:storage/managedFolderIamMember:ManagedFolderIamMember", "access-research_ablation")),
    ],
    ids=lambda pair: pair[1],
)
def test_one_comes_after_the_other_and_goes_before_it(
    program: Recording, later: tuple[str, str], earlier: tuple[str, str]
) -> None:
    assert program.named(*earlier).urn in program.closure(program.named(*later))


def test_a_changed_job_is_deleted_before_it_is_recreated(program: Recording) -> None:
    request = program.named(*JOB).request
    labels = [f'metadata.labels["kueue.x-k8s.io/{name}"]' for name in ("queue-name", "max-exec-time-seconds")]
    assert list(request.replaceOnChanges) == ["spec", *labels]
    assert request.deleteBeforeReplace


def test_a_changed_slice_is_deleted_before_it_is_recreated(program: Recording) -> None:
    for pool in program.of_type(SLICE[0]):
        if pool.name != SYSTEM_POOL[1]:
            assert list(pool.request.replaceOnChanges) == list(REPLACED_BY_US)
            assert "placementPolicy" not in REPLACED_BY_US
            assert pool.request.deleteBeforeReplace


def test_every_resource_uses_the_stacks_own_provider(program: Recording) -> None:
    own = {"gcp": "::google::", "kubernetes": "::kubernetes::"}
    for found in program.registrations:
        package = found.type.split(":")[0]
        if package in own and found.request.custom:
            assert own[package] in found.request.provider, found.name


def test_each_slice_is_a_node_pool_of_all_its_hosts(program: Recording) -> None:
    pools = {pool.name: pool.inputs for pool in program.of_type(SLICE[0])}
    assert {name: pool["nodeCount"] for name, pool in pools.items()} == {
        "cluster-system": 2,
        **{f"slices-trillium-{index}": 4 for index in range(4)},
        **{f"slices-ironwood-{index}": 2 for index in range(2)},
        "slices-single-0": 1,
    }


def test_hosts_are_placed_together_by_policy_or_topology_and_single_ones_not_at_all(program: Recording) -> None:
    placement = {
        pool.name: pool.inputs.get("placementPolicy") for pool in program.of_type(SLICE[0]) if pool.name.endswith("-0")
    }
    assert placement == {
        "slices-trillium-0": {"type": "COMPACT", "tpuTopology": "4x4"},
        "slices-ironwood-0": {"type": "", "policyName": "shared-ironwood-2x2x2", "tpuTopology": "2x2x2"},
        "slices-single-0": None,
    }
    (policy,) = program.of_type("gcp:compute/resourcePolicy:ResourcePolicy")
    assert policy.inputs["workloadPolicy"] == {"type": "HIGH_THROUGHPUT", "acceleratorTopology": "2x2x2"}


def test_nodes_carry_what_their_flavor_selects(program: Recording) -> None:
    flavor = program.named(*FLAVOR).inputs["spec"]["nodeLabels"]
    pool = program.named(*SLICE).inputs
    assert flavor["slice-group"] == pool["nodeConfig"]["labels"]["slice-group"]
    assert flavor["cloud.google.com/gke-tpu-topology"] == pool["placementPolicy"]["tpuTopology"]


def test_the_cluster_is_reached_by_its_dns_endpoint_without_secrets(program: Recording) -> None:
    inputs = program.named("pulumi:providers:kubernetes", "kubernetes").inputs
    kubeconfig = json.loads(inputs["kubeconfig"])
    assert kubeconfig["clusters"][0]["cluster"] == {"server": f"https://{DNS_ENDPOINT}"}
    assert kubeconfig["users"][0]["user"]["exec"]["command"] == "gke-gcloud-auth-plugin"
    assert inputs["clusterIdentifier"] == DNS_ENDPOINT


def test_a_first_preview_declares_what_an_update_does(two_teams: Values, program: Recording) -> None:
    previewed = {(found.type, found.name) for found in run_program(two_teams, preview=True).registrations}
    assert previewed == {(found.type, found.name) for found in program.registrations}


def test_the_sandbox_and_the_cloud_run_the_same_program() -> None:
    def declared(stack: str) -> set[tuple[str, str]]:
        return {(found.type, found.name) for found in run_program(own(stack)).registrations}

    assert declared("local") == declared("dev")


def test_the_stack_says_where_its_job_and_files_are(program: Recording) -> None:
    assert program.exports["job"] == {"name": "ablation", "namespace": "research", "queue": "research"}
    assert program.exports["jobs"] == [{**program.exports["job"], "kind": "training"}]
    assert "endpoint" in program.exports
    assert program.exports["queues"] == {"research": "research", "product": "product-ml"}
    assert program.exports["job_spec"]["storage"]["path"] == "gs://my-project-shared-checkpoints/ablation"


def test_the_stack_says_what_it_costs_and_not_what_it_cost_before(program: Recording) -> None:
    bill = program.exports["bill"]
    assert bill["at_most"]["usd_per_hour"] == 249.6  # 64 x 2.70 + 16 x 4.50 + 4 x 1.20
    assert "delta" not in bill


def test_charts_are_pinned(program: Recording) -> None:
    charts = {
        chart.name: (chart.inputs["chart"], chart.inputs["version"]) for chart in program.of_type(JOBSET_CHART[0])
    }
    assert charts == {
        "jobset": (f"oci://registry.k8s.io/jobset/charts/jobset@{JOBSET.chart_digest}", "0.12.0"),
        "kueue": (f"oci://registry.k8s.io/kueue/charts/kueue@{KUEUE.chart_digest}", "0.19.2"),
    }
    assert all(len(chart.request.transforms) == 3 for chart in program.of_type(JOBSET_CHART[0]))


def test_a_controller_preempts_pods_of_jobs(program: Recording) -> None:
    (priority,) = program.of_type("kubernetes:scheduling.k8s.io/v1:PriorityClass")
    props: Values = {"spec": {"replicas": 1, "template": {"spec": {"containers": []}}}}
    deployment = pulumi.ResourceTransformArgs(
        True, "kubernetes:apps/v1:Deployment", "d", props, pulumi.ResourceOptions()
    )
    changed: Any = prefer_controllers(deployment)
    assert changed.props["spec"] == {
        "replicas": 1,
        "template": {"spec": {"containers": [], "priorityClassName": priority.inputs["metadata"]["name"]}},
    }
    assert priority.inputs["value"] > 0


def test_certificates_in_secrets_are_left_to_the_controllers_that_write_them() -> None:
    props: Values = {"metadata": {"name": "certificates"}, "data": {"tls.crt": ""}}
    secret = pulumi.ResourceTransformArgs(True, "kubernetes:core/v1:Secret", "s", props, pulumi.ResourceOptions())
    changed = leave_certificates(secret)
    assert changed is not None
    assert changed.props == {"metadata": {"name": "certificates"}}
    other = pulumi.ResourceTransformArgs(True, "kubernetes:core/v1:ConfigMap", "c", props, pulumi.ResourceOptions())
    assert leave_certificates(other) is None


def _transformed(kind: str) -> pulumi.ResourceTransformResult | None:
    props: Values = {"metadata": {"name": "hooks", "annotations": {"kept": "yes"}}}
    arguments = pulumi.ResourceTransformArgs(True, f"kubernetes:{kind}", "hooks", props, pulumi.ResourceOptions())
    return wait_for_certificates(arguments)


@pytest.mark.parametrize("kind", ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"])
def test_a_webhook_is_there_once_it_has_certificates(kind: str) -> None:
    result = _transformed(f"admissionregistration.k8s.io/v1:{kind}")
    assert result is not None
    metadata: Any = result.props["metadata"]
    assert metadata["annotations"] == {
        "kept": "yes",
        "pulumi.com/waitFor": "jsonpath={.webhooks[*].clientConfig.caBundle}",
    }


def test_other_objects_of_a_chart_are_left_alone() -> None:
    assert _transformed("apps/v1:Deployment") is None
