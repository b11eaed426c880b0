"""The checkpoint bucket, which outlives everything else except in an environment.

`pulumi destroy` forgets the bucket and leaves it in place. The next `up` of a stack with this bucket adopts it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

_SECONDS_PER_DAY = 24 * 60 * 60
_SOFT_DELETE_DAYS = 7
"""How long a deleted checkpoint can be brought back: the least that Cloud Storage offers, for those
that the trainer replaces are billed as long (https://cloud.google.com/storage/docs/soft-delete)."""
_NOT_FOUND = re.compile("not ?found", re.IGNORECASE)
"""What Cloud Storage answers for a bucket that does not exist: `Error 404: The specified bucket does not exist.,
notFound`."""
_FORBIDDEN = re.compile("403|forbidden", re.IGNORECASE)
_UNFINISHED_UPLOAD_DAYS = 1
"""No save takes a day: the process that began such an upload is gone, and its parts are billed."""


@dataclass(frozen=True)
class CheckpointBucketArgs:
    """Name and region of the bucket, its labels, and how long it stays."""

    name: str
    region: str
    labels: Mapping[str, str]
    ephemeral: bool
    """Goes with the stack, with all that is in it: the bucket of an environment. Whoever destroys it, by
    whatever tool, then leaves nothing that is billed."""


def checkpoint_bucket(name: str, args: CheckpointBucketArgs, opts: pulumi.ResourceOptions) -> gcp.storage.Bucket:
    """The bucket for checkpoints, ledgers and manifests, in the region of the slices.

    The trainer alone decides which checkpoints go: no rule of the bucket deletes by age.
    """
    soft_delete_days = 0 if args.ephemeral else _SOFT_DELETE_DAYS
    # The bucket of an environment is deleted with all that is in it, so it must not be one that was there before.
    kept = None if args.ephemeral else _existing(args, opts.provider)
    stays = pulumi.ResourceOptions(retain_on_delete=not args.ephemeral, import_=kept)
    return gcp.storage.Bucket(
        name,
        name=args.name,
        location=args.region.upper(),
        labels=args.labels,
        uniform_bucket_level_access=True,
        public_access_prevention="enforced",
        # All hosts write a checkpoint at once: such a bucket takes up to eight times the requests of a
        # flat one from the start (https://cloud.google.com/storage/docs/hns-overview). Orbax asks
        # for the kind and removes the empty folders. It is chosen when the bucket is made, and
        # rules out object versions. `force_destroy` deletes objects only, and folders would stay.
        hierarchical_namespace=None if args.ephemeral else gcp.storage.BucketHierarchicalNamespaceArgs(enabled=True),
        soft_delete_policy=gcp.storage.BucketSoftDeletePolicyArgs(
            retention_duration_seconds=soft_delete_days * _SECONDS_PER_DAY
        ),
        lifecycle_rules=[
            gcp.storage.BucketLifecycleRuleArgs(
                action=gcp.storage.BucketLifecycleRuleActionArgs(type="AbortIncompleteMultipartUpload"),
                condition=gcp.storage.BucketLifecycleRuleConditionArgs(age=_UNFINISHED_UPLOAD_DAYS),
            )
        ],
        force_destroy=args.ephemeral,
        opts=pulumi.ResourceOptions.merge(opts, stays),
    )


def _existing(args: CheckpointBucketArgs, provider: pulumi.ProviderResource | None) -> str | None:
    """Return the bucket's id if it exists; Pulumi then imports it, unless it is in the state already."""
    try:
        found = gcp.storage.get_bucket(name=args.name, opts=pulumi.InvokeOptions(provider=provider))
    except Exception as error:  # The SDK raises a plain one, whatever the provider answers.
        if _NOT_FOUND.search(str(error)):
            return None
        raise pulumi.RunError(
            f"the checkpoint bucket {args.name} cannot be read: {error}\n{_advice(str(error))}"
        ) from None
    if found.location.upper() != args.region.upper():
        raise pulumi.RunError(
            f"the checkpoint bucket {args.name} lies in {found.location}, and cloud.region is {args.region}; a bucket"
            " cannot move. Set cloud.region back, or choose another cluster.name, which is part of the bucket's name."
            f" If nobody needs the bucket: gcloud storage rm --recursive gs://{args.name}"
        )
    return args.name


def _advice(error: str) -> str:
    if _FORBIDDEN.search(error):
        return (
            "Reading it takes the permission storage.buckets.get. If the bucket belongs to another project, choose"
            " another cluster.name, which is part of its name: bucket names are unique in all of Google Cloud"
        )
    return "`multislice doctor` checks the login and the project's APIs"
