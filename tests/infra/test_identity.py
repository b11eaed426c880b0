"""Who may do what: the grants that the program declares."""

from tests.infra.permissions import USES, granted
from tests.infra.recording import Recording

GRANTS = (
    "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember",
    "gcp:projects/iAMMember:IAMMember",
    "gcp:storage/bucketIAMMember:BucketIAMMember",
    "gcp:storage/managedFolderIamMember:ManagedFolderIamMember",
)


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
