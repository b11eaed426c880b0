"""Where the trainer's image lies.

Owns the repository. The image itself is built elsewhere and named in the stack file by digest, so
that no change of a source file replaces a running job.
"""

import pulumi
import pulumi_gcp as gcp


def image_repository(
    name: str, repository_id: str, region: str, opts: pulumi.ResourceOptions
) -> gcp.artifactregistry.Repository:
    """The repository of the trainer's image, in the region of the nodes that pull it."""
    return gcp.artifactregistry.Repository(
        name,
        repository_id=repository_id,
        location=region,
        format="DOCKER",
        docker_config=gcp.artifactregistry.RepositoryDockerConfigArgs(immutable_tags=True),
        opts=opts,
    )
