"""Who may do what: the grants that the program declares."""

from tests.infra.permissions import USES, granted
from tests.infra.recording import Recording, Values, run_program

GRANTS = (
    "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember",
    "gcp:projects/iAMMember:IAMMember",
    "gcp:storage/bucketIAMMember:BucketIAMMember",
    "gcp:storage/managedFolderIamMember:ManagedFolderIamMember",
)


def grants(program: Recording) -> set[tuple[str, str, str]]:
    """Member, place and role of what is granted on buckets and their folders."""
    given = [grant.inputs for kind in GRANTS[2:] for grant in program.of_type(kind)]
    return {
        (grant["member"], "/".join(filter(None, (grant["bucket"], grant.get("managedFolder")))), grant["role"])
        for grant in given
    }


def test_nodes_and_trainers_may_do_what_they_are_for(program: Recording) -> None:
    every = [grant.inputs for kind in GRANTS for grant in program.of_type(kind)]
    nodes = granted(grant["role"] for grant in every if grant["member"].startswith("serviceAccount:"))
    assert USES["logs and metrics"] | USES["images"] | USES["image streaming"] <= nodes
    trainers = {
        place: granted(grant["role"] for grant in every if grant.get("bucket") == place)
        for place in ("my-project-shared-checkpoints", "shared-text")
    }
    assert USES["checkpoints"] <= trainers["my-project-shared-checkpoints"]
    assert USES["data sets"] <= trainers["shared-text"]


def test_pods_on_their_hosts_network_use_the_buckets_as_nodes(values: Values) -> None:
    values["job"]["host_network"] = True
    values["datasets"] = {"bucket": "shared-text"}
    node = "serviceAccount:multislice-dev-nodes@my-project.iam.gserviceaccount.com"
    bucket = "my-project-multislice-dev-checkpoints"
    assert {(place, role) for member, place, role in grants(run_program(values)) if member == node} == {
        (f"{bucket}/teams/research/", "roles/storage.objectUser"),
        (f"{bucket}/tiny/", "roles/storage.objectUser"),
        (bucket, "roles/storage.legacyBucketReader"),
        ("shared-text", "roles/storage.objectViewer"),
    }
