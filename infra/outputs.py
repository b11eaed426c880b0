"""What a stack tells of itself: its outputs.

Owns their names; people, scripts and the sandbox read them.
"""

import pulumi
import pulumi_gcp as gcp

from infra.cluster import Cluster
from infra.job_spec import job_spec
from infra.stack_file import Settings


def export_outputs(settings: Settings, cluster: Cluster, bucket: gcp.storage.Bucket) -> None:
    """Where the job, its queue and its files are, and the job's whole specification."""
    pulumi.export("cluster", cluster.name)
    pulumi.export("region", settings.cloud.region)
    pulumi.export("checkpoint_bucket", bucket.url)
    pulumi.export("queues", {name: team.namespace for name, team in settings.teams.items()})
    job, namespace = settings.job, settings.job_team.namespace
    pulumi.export("job", {"name": job.name, "namespace": namespace, "queue": job.team})
    pulumi.export("job_spec", job_spec(settings).model_dump())
