"""Admission policies."""

from infra.stack.admission_policies import HOST_NETWORK
from tests.infra.recording import Recording, Values, run_program

POLICY = "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy"


def _levels(recording: Recording) -> dict[str, str]:
    """What the namespaces of teams enforce."""
    namespaces = [found.inputs["metadata"] for found in recording.of_type("kubernetes:core/v1:Namespace")]
    return {
        metadata["name"]: metadata["labels"]["pod-security.kubernetes.io/enforce"]
        for metadata in namespaces
        if "kueue-managed" in metadata["labels"]
    }


def _for(policy: Values) -> list[str]:
    (namespaces,) = policy["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"]
    assert (namespaces["key"], namespaces["operator"]) == ("kubernetes.io/metadata.name", "In")
    return namespaces["values"]


def test_the_hosts_network_opens_the_namespace_of_the_jobs_team_alone_and_there_nothing_else(
    two_teams: Values, program: Recording
) -> None:
    assert _levels(program) == {"research": "restricted", "product-ml": "restricted"}
    assert HOST_NETWORK not in {found.name for found in program.of_type(POLICY)}
    # A mounted bucket and the network of the host exclude each other.
    changed = {"datasets": {"bucket": "shared-text"}, "job": {**two_teams["job"], "host_network": True}}
    recording = run_program({**two_teams, **changed})
    assert _levels(recording) == {"research": "privileged", "product-ml": "restricted"}
    assert _for(recording.named(POLICY, HOST_NETWORK).inputs) == ["research"]
    binding = recording.named(f"{POLICY}Binding", f"{HOST_NETWORK}-binding")
    assert binding.urn in recording.closure(recording.named("kubernetes:core/v1:Namespace", "namespace-research"))
