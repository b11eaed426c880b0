"""The trainer's image and the repository it lies in.

Owns the repository, what it keeps, and the build for stacks that ask for one. `workloads/Dockerfile`
says what is in the image. Whatever its origin, pods name it by digest.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_docker_build as docker_build
import pulumi_gcp as gcp

from infra.settings.jobs import ContainerJob
from infra.settings.schema import Image
from infra.settings.stack import Settings

_ARTIFACT_REGISTRY = re.compile(r"(?P<location>[a-z0-9-]+)-docker\.pkg\.dev/(?P<project>[^/]+)/(?P<repository>[^/]+)/")

_KEPT_VERSIONS = 30
"""Newest ones that stay whatever their age. A build may push three: index, image and attestation."""
_UNTAGGED_SECONDS = 90 * 24 * 60 * 60
"""Longer than a job runs: its pods pull their image anew on every host that replaces another."""


def image_repository(
    name: str, repository_id: str, region: str, labels: Mapping[str, str], opts: pulumi.ResourceOptions
) -> gcp.artifactregistry.Repository:
    """The repository of the trainer's image, in the region of the nodes that pull it.

    Tags never move, and an image that has one stays until someone removes it.
    """
    return gcp.artifactregistry.Repository(
        name,
        repository_id=repository_id,
        location=region,
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
class RepositoryPlace:
    """Where a repository of a project is found."""

    location: str
    repository_id: str


def foreign_repositories(settings: Settings) -> dict[str, RepositoryPlace]:
    """The project's repositories, but the stack's own one, that images of its jobs lie in, by a name for each."""
    project, own = settings.cloud.project, RepositoryPlace(settings.cloud.region, settings.cluster.name)
    trainer = _foreign(settings.image.reference or "", project, own) if settings.image else None
    containers = [image for job in settings.jobs.values() if isinstance(job, ContainerJob) for image in job.images]
    others = {place for image in containers if (place := _foreign(image, project, own))} - {trainer}
    named = {f"images-{place.location}-{place.repository_id}": place for place in others}
    return ({"foreign-images": trainer} if trainer else {}) | dict(sorted(named.items()))


def _foreign(reference: str, project: str, own: RepositoryPlace) -> RepositoryPlace | None:
    """The project's repository that the image lies in, if it is not the stack's own one.

    None as well for images of other projects and registries, which the nodes must be able to read already.
    """
    found = _ARTIFACT_REGISTRY.match(reference)
    if found is None or found["project"] != project:
        return None
    place = RepositoryPlace(found["location"], found["repository"])
    return None if place == own else place


def built_image(
    name: str, image: Image | None, repository: gcp.artifactregistry.Repository
) -> docker_build.Image | None:
    """The image that is built from `workloads` and pushed to the stack's repository, with the credentials of the user's
    Docker; None if the stack file names one, or the stack needs none."""
    if image is None or image.reference:
        return None
    destination = _destination(repository)
    return docker_build.Image(
        name,
        context=docker_build.BuildContextArgs(location="."),
        dockerfile=docker_build.DockerfileArgs(location="workloads/Dockerfile"),
        platforms=[docker_build.Platform.LINUX_AMD64],
        # Without a tag: the same sources built twice differ in time stamps, and tags never move.
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
    """The image by digest: the one that was built, or else the one that the stack file names; None without any."""
    if built:
        return pulumi.Output.concat(_destination(repository), "@", built.digest)
    return image.reference if image else None


def _destination(repository: gcp.artifactregistry.Repository) -> pulumi.Output[str]:
    return pulumi.Output.concat(repository.registry_uri, "/trainer")
