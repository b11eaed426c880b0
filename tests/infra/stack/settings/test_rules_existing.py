"""Rules of networks and clusters that exist already."""

import pytest

from infra.stack.settings.read import parse
from tests.infra.recording import Values, stack_values
from tests.infra.spoiling import edited, errors_of

FOUND: Values = {"name": "research", "existing": {"name": "shared", "location": "us-east5-b"}}
INSTALLED: Values = {"name": "research", "existing": {**FOUND["existing"], "kueue": "install"}}
VPC: Values = {"network": "corporate", "subnet": "tpus", "pods": "tpu-pods", "services": "tpu-services"}
_PATIENCE = {"ready_minutes": 20, "fair_sharing": True}
_GROUP = "slices.trillium"


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        (
            {"cluster": {**FOUND, "release_channel": "STABLE"}, "network.nodes": "10.0.0.0/20"},
            {"cluster.release_channel": "cluster shared is not the stack's, got 'STABLE'", "network.nodes": ""},
        ),
        (
            {"cluster": {"name": "research", "existing": {"name": "shared", "location": "europe-west4"}}},
            {"cluster.existing.location": ""},
        ),
        (
            {"cluster": {"name": "research", "existing": {"name": "X_", "location": "us-east5"}}},
            {"cluster.existing.name": "at most 40"},
        ),
        # A Kueue that the stack does not install keeps its configuration.
        ({"cluster": FOUND, "scheduling": _PATIENCE}, {"scheduling.ready_minutes": ""}),
        ({"cluster": INSTALLED, "scheduling": _PATIENCE}, {}),
        ({"network.existing": {**VPC, "project": "my-host"}}, {}),
        (
            {"network.existing": VPC, "network.pods": "10.16.0.0/12", "job.host_network": True}
            | {f"{_GROUP}.second_network": True},
            {"network.pods": "", f"{_GROUP}.second_network": ""},
        ),
        ({"cluster": FOUND, "network.existing": VPC}, {"network.existing": f"got {VPC}; remove it"}),
        (
            {f"{_GROUP}.existing": True, f"{_GROUP}.boot_disk_gb": 200},
            {f"{_GROUP}.existing": "", f"{_GROUP}.boot_disk_gb": ""},
        ),
        ({"cluster": FOUND, f"{_GROUP}.existing": True}, {}),
        # Node pools that exist have nodes.
        (
            {"cluster": FOUND, f"{_GROUP}.existing": True}
            | {f"{_GROUP}.capacity": {"kind": "flex-start", "max_run_hours": 4}},
            {f"{_GROUP}.capacity": ""},
        ),
    ],
)
def test_what_exists_is_named_and_nothing_else_is_said_of_it(changes: Values, errors: dict[str, str]) -> None:
    found = errors_of(edited(stack_values("dev"), changes))
    assert found.keys() == errors.keys()
    assert [path for path, words in errors.items() if words not in found[path]] == []


def test_names_in_an_existing_cluster_have_the_prefix_of_the_stack() -> None:
    settings = parse(edited(stack_values("dev"), {"cluster": FOUND}))
    assert settings.cluster.existing is not None
    assert (settings.cluster.existing.jobset, settings.cluster.existing.kueue) == ("found", "found")
    assert settings.checkpoint_bucket == "my-project-research-checkpoints"
