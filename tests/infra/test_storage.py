"""The checkpoint bucket: what may delete from it, who may see it, where it lies."""

from tests.infra.recording import Recording

BUCKET = ("gcp:storage/bucket:Bucket", "checkpoints")
CLUSTER = ("gcp:container/cluster:Cluster", "cluster")


def test_no_rule_deletes_checkpoints_and_a_deleted_one_can_be_brought_back(program: Recording) -> None:
    bucket = program.named(*BUCKET).inputs
    assert {rule["action"]["type"] for rule in bucket["lifecycleRules"]} == {"AbortIncompleteMultipartUpload"}
    assert bucket["softDeletePolicy"]["retentionDurationSeconds"] >= 7 * 24 * 60 * 60
    assert bucket["forceDestroy"] is False


def test_the_bucket_is_closed_to_the_public_and_near_the_slices(program: Recording) -> None:
    bucket = program.named(*BUCKET).inputs
    assert (bucket["publicAccessPrevention"], bucket["uniformBucketLevelAccess"]) == ("enforced", True)
    assert bucket["location"].lower() == program.named(*CLUSTER).inputs["location"]
