"""Admission policies."""

from infra.stack.admission_policies import HOST_NETWORK
from tests.infra.recording import Values, run_program

POLICY = "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy"


def test_the_hosts_network_is_for_the_jobs_team_alone_and_what_limits_it_comes_first(two_teams: Values) -> None:
    """A mounted bucket and the network of the host exclude each other."""
    changed = {"datasets": {"bucket": "shared-text"}, "job": {**two_teams["job"], "host_network": True}}
    recording = run_program({**two_teams, **changed})
    constraints = recording.named(POLICY, HOST_NETWORK).inputs["spec"]["matchConstraints"]
    assert [each["values"] for each in constraints["namespaceSelector"]["matchExpressions"]] == [["research"]]
    found = recording.of_type("kubernetes:core/v1:Namespace")
    levels = {each.name: each.inputs["metadata"]["labels"].get("pod-security.kubernetes.io/enforce") for each in found}
    assert (levels["namespace-research"], levels["namespace-product"]) == ("privileged", "restricted")
    binding = recording.named(f"{POLICY}Binding", f"{HOST_NETWORK}-binding")
    assert binding.urn in recording.closure(recording.named("kubernetes:core/v1:Namespace", "namespace-research"))
