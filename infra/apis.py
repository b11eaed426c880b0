"""The Google Cloud APIs that the project must have on.

Owns the list. They stay on after `destroy`: others in the project may use them.
"""

import pulumi
import pulumi_gcp as gcp

APIS = (
    "artifactregistry",
    "cloudresourcemanager",
    "compute",
    "container",
    # Image streaming: https://cloud.google.com/kubernetes-engine/docs/how-to/image-streaming#requirements
    "containerfilesystem",
    "iam",
    "logging",
    "monitoring",
)
"""Without `.googleapis.com`."""


class GoogleApis(pulumi.ComponentResource):
    """The APIs, switched on."""

    def __init__(self, name: str, project: str, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tpu-multislice:infra:GoogleApis", name, None, opts)
        for api in APIS:
            gcp.projects.Service(
                f"{name}-{api}",
                project=project,
                service=f"{api}.googleapis.com",
                disable_on_destroy=False,
                opts=pulumi.ResourceOptions(parent=self),
            )
        self.register_outputs({})
