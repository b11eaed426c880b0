"""Rules of networks and clusters that exist already."""

from typing import Any

import pytest

from infra.stack.settings.read import parse
from tests.infra.recording import Values, stack_values
from tests.infra.spoiling import errors_of

FOUND: Values = {"name": "research", "existing": {"name": "shared", "location": "us-east5-b"}}
VPC: Values = {"network": "corporate", "subnet": "tpus", "pods": "tpu-pods", "services": "tpu-services"}


@pytest.fixture
def values() -> Any:
    return stack_values("dev")


def test_an_existing_cluster_is_named_with_its_location_and_nothing_else(values: Any) -> None:
    values["cluster"] = FOUND
    settings = parse(values)
    assert settings.cluster.existing is not None
    assert (settings.cluster.existing.jobset, settings.cluster.existing.kueue) == ("found", "found")
    assert settings.checkpoint_bucket == "my-project-research-checkpoints"
    values["cluster"] = {**FOUND, "release_channel": "STABLE"}
    values["network"] = {"nodes": "10.0.0.0/20"}
    found = errors_of(values)
    assert found.keys() == {"cluster.release_channel", "network.nodes"}
    assert (
        "nothing, since cluster shared is not the stack's, got 'STABLE'; remove it" in found["cluster.release_channel"]
    )


def test_an_existing_cluster_is_in_the_region_of_the_slices(values: Any) -> None:
    values["cluster"] = {"name": "research", "existing": {"name": "shared", "location": "europe-west4"}}
    assert errors_of(values).keys() == {"cluster.existing.location"}


def test_a_found_kueue_keeps_its_configuration_and_one_that_the_stack_installs_takes_it_from_the_stack_file(
    values: Any,
) -> None:
    values["cluster"] = FOUND
    values["scheduling"] = {"ready_minutes": 20, "fair_sharing": True}
    assert errors_of(values).keys() == {"scheduling.ready_minutes"}
    values["cluster"] = {"name": "research", "existing": {**FOUND["existing"], "kueue": "install"}}
    parse(values)


def test_an_existing_network_has_its_own_ranges_and_no_second_network(values: Any) -> None:
    values["network"] = {"existing": {**VPC, "project": "my-host"}}
    parse(values)
    values["network"]["pods"] = "10.16.0.0/12"
    values["slices"]["trillium"]["second_network"] = True
    values["job"]["host_network"] = True
    assert errors_of(values).keys() == {"network.pods", "slices.trillium.second_network"}


def test_node_pools_exist_only_in_an_existing_cluster_and_have_nodes(values: Any) -> None:
    values["slices"]["trillium"] |= {"existing": True, "boot_disk_gb": 200}
    assert errors_of(values).keys() == {"slices.trillium.existing", "slices.trillium.boot_disk_gb"}
    values["cluster"] = FOUND
    del values["slices"]["trillium"]["boot_disk_gb"]
    parse(values)
    values["slices"]["trillium"]["capacity"] = {"kind": "flex-start", "max_run_hours": 4}
    assert errors_of(values).keys() == {"slices.trillium.capacity"}


def test_a_section_that_does_not_belong_there_is_shown_as_it_was_written(values: Any) -> None:
    values["cluster"], values["network"] = FOUND, {"existing": VPC}
    assert f"got {VPC}; remove it" in errors_of(values)["network.existing"]


def test_a_name_that_no_cluster_can_have_is_refused_with_what_is_allowed(values: Any) -> None:
    values["cluster"] = {"name": "research", "existing": {"name": "X_", "location": "us-east5"}}
    assert "at most 40 lower-case letters, digits and hyphens" in errors_of(values)["cluster.existing.name"]
