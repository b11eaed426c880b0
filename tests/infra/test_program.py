"""The graph that the program declares: what waits for what, what is kept, what is replaced."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pulumi
import pytest
import yaml

from infra.operators import leave_certificates, prefer_controllers, restart_slices, wait_for_certificates
from infra.stack.admission_policies import PRIORITIES, TRAINERS
from tests.infra.former import URNS, former_urn
from tests.infra.recording import Recording, Values, run_program, stack_values

type Transform = Callable[[pulumi.ResourceTransformArgs], pulumi.ResourceTransformResult | None]

CLUSTER = ("gcp:container/cluster:Cluster", "cluster")
SYSTEM_POOL = ("gcp:container/nodePool:NodePool", "cluster-system")
SLICE = ("gcp:container/nodePool:NodePool", "slices-trillium-0")
JOBSET_CHART = ("kubernetes:helm.sh/v4:Chart", "jobset")
KUEUE_CHART = ("kubernetes:helm.sh/v4:Chart", "kueue")
FLAVOR = ("kubernetes:kueue.x-k8s.io/v1beta2:ResourceFlavor", "flavor-trillium")
CHECK = ("kubernetes:kueue.x-k8s.io/v1beta2:AdmissionCheck", "check-flexible")
CLUSTER_QUEUE = ("kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue", "quota-research")
LOCAL_QUEUE = ("kubernetes:kueue.x-k8s.io/v1beta2:LocalQueue", "queue-research")
NETWORK_POLICY = ("kubernetes:networking.k8s.io/v1:NetworkPolicy", "network-research")
MEMBERS = ("kubernetes:rbac.authorization.k8s.io/v1:RoleBinding", "members-research-binding")
ADMISSION = "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy"
BAD_HOST_ROLE = ("kubernetes:rbac.authorization.k8s.io/v1:ClusterRoleBinding", "bad-host-role-binding")
NAMESPACE = ("kubernetes:core/v1:Namespace", "namespace-research")
NO_POD_PRIORITY = ("kubernetes:core/v1:ResourceQuota", "no-pod-priority-research")
ACCOUNT = ("kubernetes:core/v1:ServiceAccount", "trainer-research")
JOB = ("kubernetes:jobset.x-k8s.io/v1alpha2:JobSet", "job-ablation")


@pytest.mark.parametrize(
    ("later", "earlier"),
    [
        (CLUSTER, ("gcp:compute/subnetwork:Subnetwork", "network-nodes")),
        (CLUSTER, ("gcp:compute/routerNat:RouterNat", "network-nat")),
        (CLUSTER, ("gcp:projects/service:Service", "apis-container")),
        (CLUSTER, ("gcp:projects/iAMMember:IAMMember", "nodes-role")),
        (("gcp:billing/budget:Budget", "budget"), ("gcp:projects/service:Service", "apis-billingbudgets")),
        # Images are streamed through its API.
        (SLICE, ("gcp:projects/service:Service", "apis-containerfilesystem")),
        (JOBSET_CHART, SYSTEM_POOL),
        (JOBSET_CHART, ("kubernetes:core/v1:Namespace", "jobset-system")),
        (KUEUE_CHART, ("kubernetes:core/v1:Namespace", "kueue-system")),
        (KUEUE_CHART, JOBSET_CHART),
        (FLAVOR, KUEUE_CHART),
        (CLUSTER_QUEUE, FLAVOR),
        (CLUSTER_QUEUE, ("kubernetes:kueue.x-k8s.io/v1beta2:Cohort", "cohort")),
        (CHECK, ("kubernetes:kueue.x-k8s.io/v1beta2:ProvisioningRequestConfig", "provisioning-flexible")),
        (("kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue", "quota-product"), CHECK),
        # At its start, Kueue looks for ProvisioningRequest, which GKE has once there is a queued pool.
        (KUEUE_CHART, ("gcp:container/nodePool:NodePool", "slices-flexible-0")),
        (NAMESPACE, CLUSTER_QUEUE),
        (LOCAL_QUEUE, NAMESPACE),
        (LOCAL_QUEUE, NETWORK_POLICY),
        (LOCAL_QUEUE, NO_POD_PRIORITY),
        (MEMBERS, NETWORK_POLICY),
        (MEMBERS, NO_POD_PRIORITY),
        *((MEMBERS, (f"{ADMISSION}Binding", f"{name}-binding")) for name in (TRAINERS, PRIORITIES)),
        (BAD_HOST_ROLE, (f"{ADMISSION}Binding", f"{TRAINERS}-binding")),
        (BAD_HOST_ROLE, (f"{ADMISSION}Binding", "bad-host-policy-binding")),
        (ACCOUNT, NAMESPACE),
        (JOB, LOCAL_QUEUE),
        (JOB, SLICE),
        (JOB, ACCOUNT),
        (JOB, ("kubernetes:core/v1:ConfigMap", "price-ablation")),
        (JOB, ("kubernetes:kueue.x-k8s.io/v1beta2:WorkloadPriorityClass", "priority-high")),
        (JOB, ("gcp:storage/managedFolderIamMember:ManagedFolderIamMember", "access-research_ablation")),
    ],
    ids=lambda pair: pair[1],
)
def test_one_comes_after_the_other_and_goes_before_it(
    program: Recording, later: tuple[str, str], earlier: tuple[str, str]
) -> None:
    assert program.named(*earlier).urn in program.closure(program.named(*later))


def test_every_resource_uses_the_stacks_own_provider(program: Recording) -> None:
    own = {"gcp": "::google::", "kubernetes": "::kubernetes::"}
    for found in program.registrations:
        package = found.type.split(":")[0]
        if package in own and found.request.custom:
            provider = "::billing::" if found.type == "gcp:billing/budget:Budget" else own[package]
            assert provider in found.request.provider, found.name


def test_a_first_preview_declares_what_an_update_does(two_teams: Values, program: Recording) -> None:
    previewed = {(found.type, found.name) for found in run_program(two_teams, preview=True).registrations}
    assert previewed == {(found.type, found.name) for found in program.registrations}


def test_the_stack_says_where_its_job_and_files_are(program: Recording) -> None:
    assert program.exports["job"] == {"name": "ablation", "namespace": "research", "queue": "research"}
    assert program.exports["jobs"] == [{**program.exports["job"], "kind": "training"}]
    assert "endpoint" in program.exports
    assert program.exports["queues"] == {"research": "research", "product": "product-ml"}
    assert program.exports["job_spec"]["storage"]["path"] == "gs://my-project-shared-checkpoints/ablation"


def _transformed(transform: Transform, kind: str, spec: Values) -> object:
    arguments = pulumi.ResourceTransformArgs(True, f"kubernetes:{kind}", "any", spec, pulumi.ResourceOptions())
    result = transform(arguments)
    return result and result.props


def test_a_controller_preempts_pods_of_jobs(program: Recording) -> None:
    (priority,) = program.of_type("kubernetes:scheduling.k8s.io/v1:PriorityClass")
    deployment: Values = {"spec": {"replicas": 1, "template": {"spec": {"containers": []}}}}
    preferred = {"containers": [], "priorityClassName": priority.inputs["metadata"]["name"]}
    changed = _transformed(
        partial(prefer_controllers, priority.inputs["metadata"]["name"]), "apps/v1:Deployment", deployment
    )
    assert changed == {"spec": {"replicas": 1, "template": {"spec": preferred}}}
    assert priority.inputs["value"] > 0


def test_certificates_in_secrets_are_left_to_the_controllers_that_write_them() -> None:
    written: Values = {"metadata": {"name": "certificates"}, "data": {"tls.crt": ""}}
    assert _transformed(leave_certificates, "core/v1:Secret", written) == {"metadata": {"name": "certificates"}}
    assert _transformed(leave_certificates, "core/v1:ConfigMap", written) is None


def test_jobset_may_restart_single_slices_and_keeps_the_rest_of_its_configuration() -> None:
    configuration = {"apiVersion": "config.jobset.x-k8s.io/v1alpha1", "leaderElection": {"leaderElect": True}}
    written: Values = {"metadata": {"name": "any"}, "data": {"config.yaml": yaml.safe_dump(configuration)}}
    changed: Any = _transformed(restart_slices, "core/v1:ConfigMap", written)
    assert changed["metadata"] == {"name": "any"}
    assert yaml.safe_load(changed["data"]["config.yaml"]) == {**configuration, "featureGates": {"RestartJob": True}}


@pytest.mark.parametrize("api_version", ["config.kueue.x-k8s.io/v1beta2", None])
def test_no_other_configuration_is_changed(api_version: str | None) -> None:
    others: Values = {"metadata": {}, "data": {"config.yaml": yaml.safe_dump({"apiVersion": api_version})}}
    assert _transformed(restart_slices, "core/v1:ConfigMap", others) is None
    assert _transformed(restart_slices, "core/v1:ConfigMap", {"metadata": {}}) is None
    assert _transformed(restart_slices, "core/v1:Secret", others) is None


def test_a_webhook_is_there_once_it_has_certificates() -> None:
    hooks: Values = {"metadata": {"name": "hooks", "annotations": {"kept": "yes"}}}
    waiting = {"kept": "yes", "pulumi.com/waitFor": "jsonpath={.webhooks[*].clientConfig.caBundle}"}
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        changed = _transformed(wait_for_certificates, f"admissionregistration.k8s.io/v1:{kind}", hooks)
        assert changed == {"metadata": {"name": "hooks", "annotations": waiting}}
    assert _transformed(wait_for_certificates, "apps/v1:Deployment", hooks) is None


def test_charts_are_changed_on_their_way_to_the_cluster(program: Recording) -> None:
    assert {len(chart.request.transforms) for chart in program.of_type(JOBSET_CHART[0])} == {4}


def test_every_resource_of_a_stack_that_an_earlier_program_deployed_is_known_under_its_new_parent() -> None:
    found = run_program(stack_values("local")).registrations
    urns = {former_urn(each.urn) for each in found if not each.type.endswith((":Foundation", ":Fleet", ":Job"))}
    # The recording gives a resource without a parent the stack's type, which the engine omits.
    assert {urn.replace("pulumi:pulumi:Stack$", "") for urn in urns} >= {
        urn.replace("pulumi:pulumi:Stack$", "") for urn in URNS.read_text().splitlines()
    }


def test_a_stack_with_placeholders_declares_what_refuses_them_ahead_of_all_that_costs() -> None:
    program = run_program(stack_values("dev"))
    record = program.named("pulumi:index:Stash", "placeholders")
    for costly in (CLUSTER[0], SLICE[0]):
        assert all(record.urn in program.closure(each) for each in program.of_type(costly))
