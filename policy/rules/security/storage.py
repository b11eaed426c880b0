"""What buckets and image repositories must be."""

from collections.abc import Iterator

from policy.resources import BUCKET, REPOSITORY, at, ends
from policy.rule import Declared, ResourceRule, Rule, Severity
from policy.rules.security.about import must, should

_ACLS = (
    "gcp:storage/bucketACL:BucketACL",
    "gcp:storage/bucketAccessControl:BucketAccessControl",
    "gcp:storage/defaultObjectACL:DefaultObjectACL",
    "gcp:storage/defaultObjectAccessControl:DefaultObjectAccessControl",
    "gcp:storage/objectACL:ObjectACL",
    "gcp:storage/objectAccessControl:ObjectAccessControl",
)


def _private(bucket: Declared) -> Iterator[str]:
    prevention = bucket.properties.get("publicAccessPrevention")
    if prevention != "enforced":
        yield f"expected publicAccessPrevention enforced, got {prevention}"


def _uniform(resource: Declared) -> Iterator[str]:
    if resource.type != BUCKET:
        yield "expected grants of IAM alone, got an access control list"
    elif not resource.properties.get("uniformBucketLevelAccess"):
        yield "expected uniformBucketLevelAccess to be true, got nothing or false"


def _recoverable(bucket: Declared) -> Iterator[str]:
    # Cloud Storage's default is seven days.
    if at(bucket.properties, "softDeletePolicy", "retentionDurationSeconds") == 0 and not ends(bucket):
        yield "expected deleted objects to be kept for a while, got softDeletePolicy.retentionDurationSeconds 0"


def _fixed_tags(repository: Declared) -> Iterator[str]:
    docker = repository.properties.get("format", "DOCKER") == "DOCKER"
    if docker and not at(repository.properties, "dockerConfig", "immutableTags"):
        yield "expected dockerConfig.immutableTags to be true, got nothing or false"


def _scanned(repository: Declared) -> Iterator[str]:
    if at(repository.properties, "vulnerabilityScanningConfig", "enablementConfig") == "DISABLED":
        yield "expected images to be scanned as the project says, got enablementConfig DISABLED"


RULES: tuple[Rule, ...] = (
    ResourceRule(
        must(
            "no-public-bucket",
            Severity.CRITICAL,
            "A bucket cannot be made public",
            why="Weights and data would be readable by everyone after one wrong grant.",
            fix="Set publicAccessPrevention to enforced.",
            link="https://cloud.google.com/storage/docs/public-access-prevention",
        ),
        (BUCKET,),
        _private,
    ),
    ResourceRule(
        must(
            "uniform-bucket-access",
            Severity.HIGH,
            "IAM alone says who reads a bucket",
            why="Access lists of single objects are seen by no review.",
            fix="Set uniformBucketLevelAccess and grant roles with BucketIAMMember.",
            link="https://cloud.google.com/storage/docs/uniform-bucket-level-access",
        ),
        (BUCKET, *_ACLS),
        _uniform,
    ),
    ResourceRule(
        must(
            "recoverable-objects",
            Severity.MEDIUM,
            "Deleted checkpoints can be brought back",
            why="Whoever may write checkpoints may delete them, by mistake or not.",
            fix="Remove softDeletePolicy or set retentionDurationSeconds to at least 604800.",
            link="https://cloud.google.com/storage/docs/soft-delete",
        ),
        (BUCKET,),
        _recoverable,
    ),
    ResourceRule(
        must(
            "fixed-image-tags",
            Severity.MEDIUM,
            "A tag of an image never moves",
            why="What was reviewed under a tag would not be what runs under it.",
            fix="Set dockerConfig.immutableTags.",
            link="https://cloud.google.com/artifact-registry/docs/docker/names#tag-versions",
        ),
        (REPOSITORY,),
        _fixed_tags,
    ),
    ResourceRule(
        should(
            "scanned-images",
            Severity.LOW,
            "Images are scanned for known vulnerabilities",
            why="Nobody else tells you that a library in the trainer's image has one.",
            fix="Remove vulnerabilityScanningConfig or set it to INHERITED.",
            link="https://cloud.google.com/artifact-analysis/docs/container-scanning-overview",
        ),
        (REPOSITORY,),
        _scanned,
    ),
)
