"""The bucket that outlives everything else.

Owns the checkpoint bucket. It hangs on nothing but its provider: what a protected resource depends
on stays with it when `pulumi destroy --exclude-protected` removes the rest.
"""

import pulumi
import pulumi_gcp as gcp


def checkpoint_bucket(name: str, bucket_name: str, region: str, opts: pulumi.ResourceOptions) -> gcp.storage.Bucket:
    """The bucket for checkpoints, ledgers and manifests, in the region of the slices."""
    return gcp.storage.Bucket(
        name,
        name=bucket_name,
        location=region.upper(),
        uniform_bucket_level_access=True,
        public_access_prevention="enforced",
        # Folders that Orbax can rename at once.
        hierarchical_namespace=gcp.storage.BucketHierarchicalNamespaceArgs(enabled=True),
        # Replaced checkpoints would else be kept, and billed, for a week.
        soft_delete_policy=gcp.storage.BucketSoftDeletePolicyArgs(retention_duration_seconds=0),
        force_destroy=False,
        opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(protect=True)),
    )
