"""A source and two environments of it in one project share nothing that a destroy of one would take from another."""

from collections.abc import Iterator
from typing import Any

import pytest

from cli.environments.create import derive
from cli.stack_file import PREFIX
from infra.settings.schema import Environment
from tests.infra.recording import Recording, Registration, Values, run_program, stack_values

_END = "2026-11-21T18:00:00Z"
_OF_THE_PROJECT = {
    "gcp:artifactregistry/repository:Repository": ("location", "repositoryId"),
    "gcp:billing/budget:Budget": ("billingAccount", "displayName"),
    "gcp:compute/firewall:Firewall": ("name",),
    "gcp:compute/network:Network": ("name",),
    "gcp:compute/resourcePolicy:ResourcePolicy": ("region", "name"),
    "gcp:compute/router:Router": ("region", "name"),
    "gcp:compute/routerNat:RouterNat": ("region", "router", "name"),
    "gcp:compute/subnetwork:Subnetwork": ("region", "name"),
    "gcp:container/cluster:Cluster": ("location", "name"),
    "gcp:container/nodePool:NodePool": ("location", "cluster", "name"),
    "gcp:monitoring/notificationChannel:NotificationChannel": ("displayName",),
    "gcp:serviceaccount/account:Account": ("accountId",),
    "gcp:storage/bucket:Bucket": ("name",),
    "gcp:storage/bucketIAMMember:BucketIAMMember": ("bucket", "role", "member"),
    "gcp:storage/managedFolder:ManagedFolder": ("bucket", "name"),
    "gcp:storage/managedFolderIamMember:ManagedFolderIamMember": ("bucket", "managedFolder", "role", "member"),
    "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember": ("location", "repository", "role", "member"),
    "gcp:projects/iAMMember:IAMMember": ("project", "role", "member"),
}
"""Properties that distinguish two resources of a type within a project."""
_SHARED = "gcp:projects/service:Service"
"""APIs of the project."""


@pytest.fixture(scope="module")
def source() -> Values:
    """Like dev, with all that makes names: a data set, pods on their hosts' network, second networks, policies."""
    values = stack_values("dev")
    shape: Any = {"generation": "7x", "topology": "2x2x2", "count": 1, "capacity": "spot", "second_network": True}
    values["slices"]["ironwood"] = shape
    values["teams"]["research"]["quota"]["ironwood"] = 8
    values["datasets"] = {"bucket": "shared-text"}
    values["job"]["host_network"] = True
    registry = "us-east5-docker.pkg.dev/my-project/multislice-dev"
    values["image"] = {"reference": f"{registry}/trainer@sha256:{64 * '0'}"}
    alerts = {"billing_account": "012345-6789AB-CDEF01", "usd_per_month": 30000, "emails": ["ada@example.com"]}
    values["budget"] = {"expires_on": "2999-12-31", "alerts": alerts}
    return values


def environment_of(values: Values, name: str) -> Values:
    content: Values = {"config": {f"{PREFIX}{section}": value for section, value in values.items()}}
    config = derive(content, name, Environment(source="dev", expires_at=_END))["config"]
    return {key.removeprefix(PREFIX): value for key, value in config.items()}


@pytest.fixture(scope="module")
def programs(source: Values) -> dict[str, Recording]:
    stacks = {"dev": source} | {name: environment_of(source, name) for name in ("pr-1", "pr-12")}
    return {stack: run_program(values) for stack, values in stacks.items()}


def test_no_two_stacks_share_a_resource_of_the_cloud_or_a_grant(programs: dict[str, Recording]) -> None:
    owners: dict[tuple[str, ...], str] = {}
    for stack, program in programs.items():
        for found in _of_the_cloud(program):
            if found.type != _SHARED:
                identity = (found.type, *(str(found.inputs[key]) for key in _OF_THE_PROJECT[found.type]))
                assert owners.setdefault(identity, stack) == stack
    kinds = {identity[0] for identity in owners}
    assert kinds == set(_OF_THE_PROJECT), "the test sees every kind of resource that the program can declare"


def test_an_environment_keeps_the_limits_of_its_source_whose_alerts_count_it_already(
    source: Values, programs: dict[str, Recording]
) -> None:
    assert environment_of(source, "pr-1")["budget"] == {"expires_on": "2999-12-31"}
    assert len(programs["dev"].of_type("gcp:billing/budget:Budget")) == 1


def test_what_they_do_share_stays_when_one_is_destroyed(programs: dict[str, Recording]) -> None:
    shared = [found for program in programs.values() for found in program.of_type(_SHARED)]
    assert {found.inputs["disableOnDestroy"] for found in shared} == {False}


def test_the_nodes_of_an_environment_read_the_image_of_its_source(programs: dict[str, Recording]) -> None:
    grants = programs["pr-1"].of_type("gcp:artifactregistry/repositoryIamMember:RepositoryIamMember")
    assert {grant.inputs["repository"] for grant in grants} == {"pr-1", "multislice-dev"}
    assert {grant.inputs["member"] for grant in grants} == {
        "serviceAccount:pr-1-nodes@my-project.iam.gserviceaccount.com"
    }


def test_nothing_of_an_environment_survives_its_destroy(programs: dict[str, Recording]) -> None:
    program = programs["pr-1"]
    (bucket,) = program.of_type("gcp:storage/bucket:Bucket")
    assert bucket.inputs["forceDestroy"] is True
    assert bucket.inputs["softDeletePolicy"] == {"retentionDurationSeconds": 0}
    assert not any(found.request.protect for found in program.registrations)
    assert [cluster.inputs["deletionProtection"] for cluster in program.of_type("gcp:container/cluster:Cluster")] == [
        False
    ]


def test_all_that_can_carry_labels_says_when_it_should_be_gone(programs: dict[str, Recording]) -> None:
    labelled = {"environment-of": "dev", "expires-at": "2026-11-21t18-00-00z", "managed-by": "tpu-multislice"}
    seen: list[str] = []
    for found in _of_the_cloud(programs["pr-12"]):
        labels = (
            found.inputs.get("labels")
            or found.inputs.get("resourceLabels")
            or found.inputs.get("nodeConfig", {}).get("resourceLabels")
        )
        if labels:
            assert labels == labelled
            seen.append(found.type.rpartition(":")[2])
    assert sorted(set(seen)) == ["Bucket", "Cluster", "NodePool", "Repository"]
    assert programs["pr-12"].exports["environment"] == {"source": "dev", "expires_at": _END}


def test_all_that_costs_waits_for_the_record_of_its_end(programs: dict[str, Recording]) -> None:
    program = programs["pr-1"]
    (record,) = [found for found in program.registrations if found.name == "expiry"]
    assert record.inputs["input"]["expires_at"] == _END
    costly = {"gcp:container/cluster:Cluster", "gcp:container/nodePool:NodePool"}
    assert all(record.urn in program.closure(found) for found in _of_the_cloud(program) if found.type in costly)


def test_a_stack_that_stays_exports_no_environment(programs: dict[str, Recording]) -> None:
    assert "environment" not in programs["dev"].exports


def _of_the_cloud(program: Recording) -> Iterator[Registration]:
    return (found for found in program.registrations if found.type.startswith("gcp:"))
