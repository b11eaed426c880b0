"""Two stacks of one project share nothing that a destroy of one would take from the other."""

from typing import Any

import pytest

from tests.infra.recording import Recording, Values, run_program, stack_values

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


@pytest.fixture(scope="module")
def programs(source: Values) -> dict[str, Recording]:
    """The stack dev and a copy with a cluster and namespaces of its own."""
    (team,) = source["teams"].values()
    namespace = {**team, "namespace": f"trial-{team['namespace']}"}
    copied = {"cluster": {**source["cluster"], "name": "trial"}, "teams": dict.fromkeys(source["teams"], namespace)}
    # The alerts of the source already count everything in the project.
    budget = {key: value for key, value in source["budget"].items() if key != "alerts"}
    return {"dev": run_program(source), "trial": run_program({**source, **copied, "budget": budget})}


def test_no_two_stacks_share_a_resource_of_the_cloud_or_a_grant(programs: dict[str, Recording]) -> None:
    owners: dict[tuple[str, ...], str] = {}
    for stack, program in programs.items():
        for found in (each for each in program.registrations if each.type.startswith("gcp:")):
            if found.type != _SHARED:
                identity = (found.type, *(str(found.inputs[key]) for key in _OF_THE_PROJECT[found.type]))
                assert owners.setdefault(identity, stack) == stack
    kinds = {identity[0] for identity in owners}
    assert kinds == set(_OF_THE_PROJECT), "the test sees every kind of resource that the program can declare"
