"""The checkpoint bucket, and the trainer's image with its repository.

The bucket outlives everything else: `pulumi destroy` forgets it and keeps it in place, and the next `up` of a stack
with this bucket adopts it. `workloads/Dockerfile` defines the image. Pods refer to it by
digest, whether it was built or not."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pulumi
import pulumi_docker_build as docker_build
import pulumi_gcp as gcp

from infra.stack.names import HOURS_PER_DAY, SECONDS_PER_HOUR
from infra.stack.project import CHECKOUT, find_project
from infra.stack.settings.schema import Image
from infra.stack.settings.stack import Settings

_SECONDS_PER_DAY = HOURS_PER_DAY * SECONDS_PER_HOUR
_SOFT_DELETE_DAYS = 7
"""Days in which a deleted checkpoint can be restored. This is the minimum of Cloud Storage, because checkpoints that
the trainer replaces are billed for that time (https://cloud.google.com/storage/docs/soft-delete)."""
_NOT_FOUND = re.compile("not ?found", re.IGNORECASE)
"""Error of Cloud Storage for a bucket that does not exist: `Error 404: The specified bucket does not exist.,
notFound`."""
_FORBIDDEN = re.compile("403|forbidden", re.IGNORECASE)
_UNFINISHED_UPLOAD_DAYS = 1
"""Days after which an unfinished upload is deleted. No save takes a day: the process that started the upload is gone,
and its parts are billed."""


@dataclass(frozen=True)
class BucketArgs:
    """Name, region and labels of the bucket."""

    name: str
    region: str
    labels: Mapping[str, str]

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the bucket of a stack."""
        return cls(settings.checkpoint_bucket, settings.cloud.region, settings.resource_labels)


def checkpoint_bucket(name: str, args: BucketArgs, opts: pulumi.ResourceOptions) -> gcp.storage.Bucket:
    """Declare the bucket for checkpoints, ledgers and manifests, in the region of the slices.

    Only the trainer decides which checkpoints are deleted. No rule of the bucket deletes by age.
    """
    stays = pulumi.ResourceOptions(retain_on_delete=True, import_=_existing(args, opts.provider))
    return gcp.storage.Bucket(
        name,
        name=args.name,
        location=args.region.upper(),
        labels=args.labels,
        uniform_bucket_level_access=True,
        public_access_prevention="enforced",
        # All hosts write a checkpoint at the same time, and a hierarchical bucket serves up to eight times as many
        # requests as a flat one from the start (https://cloud.google.com/storage/docs/hns-overview). Orbax detects the
        # kind and removes the empty folders. The kind cannot be changed later and excludes object versions.
        hierarchical_namespace=gcp.storage.BucketHierarchicalNamespaceArgs(enabled=True),
        soft_delete_policy=gcp.storage.BucketSoftDeletePolicyArgs(
            retention_duration_seconds=_SOFT_DELETE_DAYS * _SECONDS_PER_DAY
        ),
        lifecycle_rules=[unfinished_uploads()],
        force_destroy=False,
        opts=pulumi.ResourceOptions.merge(opts, stays),
    )


def unfinished_uploads() -> gcp.storage.BucketLifecycleRuleArgs:
    """Return the rule that deletes the parts of unfinished uploads."""
    return gcp.storage.BucketLifecycleRuleArgs(
        action=gcp.storage.BucketLifecycleRuleActionArgs(type="AbortIncompleteMultipartUpload"),
        condition=gcp.storage.BucketLifecycleRuleConditionArgs(age=_UNFINISHED_UPLOAD_DAYS),
    )


def _existing(args: BucketArgs, provider: pulumi.ProviderResource | None) -> str | None:
    try:
        found = gcp.storage.get_bucket(name=args.name, opts=pulumi.InvokeOptions(provider=provider))
    except Exception as error:  # The SDK raises a plain Exception for every error of the provider.
        if _NOT_FOUND.search(str(error)):
            return None
        raise pulumi.RunError(
            f"the checkpoint bucket {args.name} cannot be read: {error}\n{_advice(str(error))}"
        ) from None
    if found.location.upper() != args.region.upper():
        raise pulumi.RunError(
            f"the checkpoint bucket {args.name} is in {found.location}, but cloud.region is {args.region}; a bucket"
            " cannot move. Set cloud.region back, or choose another cluster.name, which is part of the bucket's name."
            f" If the bucket is no longer needed: gcloud storage rm --recursive gs://{args.name}"
        )
    return args.name


def _advice(error: str) -> str:
    if _FORBIDDEN.search(error):
        return (
            "Reading it requires the permission storage.buckets.get. If the bucket belongs to another project, choose"
            " another cluster.name, which is part of its name: bucket names are unique in all of Google Cloud"
        )
    return "`multislice doctor` checks the login and the project's APIs"


_ARTIFACT_REGISTRY = re.compile(r"(?P<location>[a-z0-9-]+)-docker\.pkg\.dev/(?P<project>[^/]+)/(?P<repository>[^/]+)/")
_KEPT_VERSIONS = 30
"""Number of the newest versions to keep, whatever their age. A build may push three: index, image and attestation."""
_UNTAGGED_SECONDS = 90 * _SECONDS_PER_DAY
"""Seconds to keep untagged versions: longer than a job runs, because its pods pull their image on every replacement
host."""


def image_repository(
    name: str, repository: "RepositoryRef", labels: Mapping[str, str], opts: pulumi.ResourceOptions
) -> gcp.artifactregistry.Repository:
    """Declare the repository of the trainer's image, in the region of the nodes that pull it.

    Tags never move, and a tagged image is kept until someone removes it.
    """
    return gcp.artifactregistry.Repository(
        name,
        repository_id=repository.repository_id,
        location=repository.location,
        format="DOCKER",
        labels=labels,
        docker_config=gcp.artifactregistry.RepositoryDockerConfigArgs(immutable_tags=True),
        cleanup_policies=[
            gcp.artifactregistry.RepositoryCleanupPolicyArgs(
                id="keep-recent",
                action="KEEP",
                most_recent_versions=gcp.artifactregistry.RepositoryCleanupPolicyMostRecentVersionsArgs(
                    keep_count=_KEPT_VERSIONS
                ),
            ),
            gcp.artifactregistry.RepositoryCleanupPolicyArgs(
                id="delete-untagged",
                action="DELETE",
                condition=gcp.artifactregistry.RepositoryCleanupPolicyConditionArgs(
                    tag_state="UNTAGGED", older_than=f"{_UNTAGGED_SECONDS}s"
                ),
            ),
        ],
        opts=opts,
    )


@dataclass(frozen=True)
class RepositoryRef:
    """Location and identifier of a repository of a project."""

    location: str
    repository_id: str


def foreign_repositories(settings: Settings) -> dict[str, RepositoryRef]:
    """Return the project's other repositories that contain images of its jobs, each by a name."""
    project, own = settings.cloud.project, RepositoryRef(settings.cloud.region, settings.cluster.name)
    trainer = _foreign(settings.image.reference or "", project, own) if settings.image else None
    images = [image for job in settings.jobs.values() for image in job.images]
    others = {repository for image in images if (repository := _foreign(image, project, own))} - {trainer}
    named = {f"images-{repository.location}-{repository.repository_id}": repository for repository in others}
    return ({"foreign-images": trainer} if trainer else {}) | dict(sorted(named.items()))


def _foreign(reference: str, project: str, own: RepositoryRef) -> RepositoryRef | None:
    """Return the project's repository that contains the image; `None` if it is the stack's own.

    Also `None` for images of other projects and registries, which the nodes must already be able to read.
    """
    found = _ARTIFACT_REGISTRY.match(reference)
    if found is None or found["project"] != project:
        return None
    repository = RepositoryRef(found["location"], found["repository"])
    return None if repository == own else repository


def built_image(
    name: str, image: Image | None, repository: gcp.artifactregistry.Repository
) -> docker_build.Image | None:
    """Declare the image that is built from `workloads` and pushed to the stack's repository with the user's Docker
    credentials. Return `None` if the stack file names an image or the stack needs none."""
    if image is None or image.reference:
        return None
    destination = _destination(repository)
    # Relative, so that the state does not depend on where the project is.
    sources = Path(os.path.relpath(CHECKOUT, find_project()))
    return docker_build.Image(
        name,
        context=docker_build.BuildContextArgs(location=str(sources)),
        dockerfile=docker_build.DockerfileArgs(location=str(sources / "workloads" / "Dockerfile")),
        platforms=[docker_build.Platform.LINUX_AMD64],
        # Without a tag: two builds of the same sources differ in time stamps, and tags never move.
        exports=[
            docker_build.ExportArgs(
                registry=docker_build.ExportRegistryArgs(names=[destination], push=True, push_by_digest=True)
            )
        ],
        push=False,
        build_on_preview=False,
    )


def image_reference(
    image: Image | None, built: docker_build.Image | None, repository: gcp.artifactregistry.Repository
) -> pulumi.Input[str] | None:
    """Return the image by digest: the built one, or the one named in the stack file, if any."""
    if built:
        return pulumi.Output.concat(_destination(repository), "@", built.digest)
    return image.reference if image else None


def _destination(repository: gcp.artifactregistry.Repository) -> pulumi.Output[str]:
    return pulumi.Output.concat(repository.registry_uri, "/trainer")
