"""What must hold of buckets, which keep the checkpoints."""

from collections.abc import Iterator, Sequence

from policy.resources import BUCKET, NODE_POOL, at, ends, every, of_type
from policy.rule import About, Broken, Declared, Group, Level, ResourceRule, Rule, Severity, StackRule
from policy.slices import is_tpu


def _not_emptied(bucket: Declared) -> Iterator[str]:
    if at(bucket.properties, "forceDestroy") and not ends(bucket):
        yield "expected forceDestroy to be false, got true"


def _kept(bucket: Declared) -> Iterator[str]:
    for rule in every(bucket.properties, "lifecycleRules"):
        condition = at(rule, "condition")
        prefixes = every(condition, "matchesPrefixes")
        if at(rule, "action", "type") == "Delete" and (not prefixes or "" in prefixes):
            yield f"expected no rule that deletes objects of any name, got one by {', '.join(condition or ())}"


def _near(resources: Sequence[Declared]) -> Iterator[Broken]:
    regions = {
        _region(pool) for pool in of_type(resources, NODE_POOL) if is_tpu(pool) and at(pool.properties, "location")
    }
    for bucket in of_type(resources, BUCKET):
        location = at(bucket.properties, "location")
        if regions and location is not None and location.lower() not in regions:
            says = f"expected the region of the slices ({', '.join(sorted(regions))}), got {location.lower()}"
            yield Broken(says, bucket.urn)


def _region(pool: Declared) -> str:
    """Of a pool's location, which is a region or a zone such as `us-east5-b`."""
    return "-".join(at(pool.properties, "location").split("-")[:2])


def _folders(bucket: Declared) -> Iterator[str]:
    if not at(bucket.properties, "hierarchicalNamespace", "enabled") and not ends(bucket):
        yield "expected hierarchicalNamespace to be enabled, got nothing or false"


RULES: tuple[Rule, ...] = (
    ResourceRule(
        About(
            "bucket-not-emptied",
            Group.RELIABILITY,
            Severity.CRITICAL,
            Level.MANDATORY,
            "A bucket that is not empty is not deleted, but for that of an environment",
            "The provider would empty the bucket first, checkpoints of months and all.",
            "Leave forceDestroy false; empty a bucket by hand when it is to go.",
            "https://www.pulumi.com/registry/packages/gcp/api-docs/storage/bucket/",
        ),
        (BUCKET,),
        _not_emptied,
    ),
    ResourceRule(
        About(
            "bucket-keeps-checkpoints",
            Group.RELIABILITY,
            Severity.CRITICAL,
            Level.MANDATORY,
            "No rule of the bucket deletes checkpoints by age",
            "Files of one checkpoint differ in age: a rule deletes parts of the newest one that is whole.",
            "Leave clean-up to job.training.keep_checkpoints, or give the rule matchesPrefixes.",
            "https://cloud.google.com/storage/docs/lifecycle",
        ),
        (BUCKET,),
        _kept,
    ),
    StackRule(
        About(
            "bucket-region",
            Group.RELIABILITY,
            Severity.MEDIUM,
            Level.MANDATORY,
            "Checkpoints lie in the region of the slices",
            "Every save and restore would cross regions: slower for all hosts at once, and billed by the gigabyte.",
            "Give the bucket cloud.region as its location.",
            "https://cloud.google.com/storage/docs/locations",
        ),
        _near,
    ),
    ResourceRule(
        About(
            "bucket-folders",
            Group.RELIABILITY,
            Severity.LOW,
            Level.ADVISORY,
            "A bucket takes the requests of all hosts at once, but for that of an environment",
            "A flat bucket starts at an eighth of the requests and answers the rest with 429 while all hosts save."
            " It cannot be changed later.",
            "Enable hierarchicalNamespace when the bucket is made.",
            "https://cloud.google.com/storage/docs/hns-overview",
        ),
        (BUCKET,),
        _folders,
    ),
)
