"""A Pulumi program of your own: a cluster, two slices for one team, and a training job."""

import pulumi
import pulumi_gcp as gcp
from pulumi import ResourceOptions

from infra.fleet import Fleet, FleetArgs
from infra.foundation import Foundation, FoundationArgs
from infra.job import Job, JobArgs
from infra.objects import kubernetes_provider
from infra.stack.capacity import Spot
from infra.stack.settings.jobs import JobSlices, TrainingJob
from infra.stack.settings.schema import Cloud, Cluster, Quota, SliceGroup, Team
from infra.stack.settings.stack import FleetSpec

config = pulumi.Config()
cloud = Cloud(project=config.require("project"), region="us-east5", zone="us-east5-b")
google = gcp.Provider("google", project=cloud.project, region=cloud.region)

east = Cluster(
    name="east",
    release_channel="REGULAR",
    deletion_protection=False,
    system_machine_type="e2-standard-4",
    system_nodes=1,
)
foundation = Foundation("east", FoundationArgs(cloud=cloud, cluster=east), ResourceOptions(provider=google))
endpoint = foundation.cluster.endpoint
kubernetes = kubernetes_provider("east", endpoint, ResourceOptions(depends_on=[foundation]))

bucket = gcp.storage.Bucket(
    "checkpoints",
    name=f"{cloud.project}-east-checkpoints",
    location=cloud.region,
    uniform_bucket_level_access=True,
    public_access_prevention="enforced",
    labels={"managed-by": "me"},
    opts=ResourceOptions(provider=google),
)
trillium = SliceGroup(generation="v6e", topology="2x4", count=2, capacity=Spot(kind="spot"))
spec = FleetSpec(
    cloud=cloud,
    slices={"trillium": trillium},
    teams={"research": Team(namespace="research", quota={"trillium": Quota(chips=16)})},
    bucket=f"{cloud.project}-east-checkpoints",
)
fleet = Fleet(
    "tpus",
    FleetArgs(spec=spec, cluster=foundation.cluster),
    ResourceOptions(providers=[google, kubernetes], depends_on=[bucket]),
)

tiny = TrainingJob(
    name="tiny",
    team="research",
    slices=JobSlices(group="trillium", count=2),
    preset="tiny",
    priority="normal",
    max_restarts=3,
    existing_run="resume",
)
job_args = JobArgs(fleet=fleet.spec, cluster=fleet.cluster, needs=fleet.needs, job=tiny, image=config.require("image"))
job = Job("tiny", job_args, ResourceOptions(provider=kubernetes))

pulumi.export("endpoint", endpoint)
pulumi.export("job", job.jobset.id)
