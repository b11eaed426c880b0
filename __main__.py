"""A stack file becomes a cluster with TPU slices, queues and a running training job."""

import pulumi
import pulumi_gcp as gcp
from pulumi import InvokeOutputOptions, ResourceOptions

from infra.apis import GoogleApis
from infra.cluster import Cluster, ClusterArgs
from infra.identity import NodeIdentity, NodeIdentityArgs, TrainerAccess, TrainerAccessArgs, project_number
from infra.image import image_reference, image_repository
from infra.job_spec import job_spec
from infra.kubernetes_objects import kubernetes_provider
from infra.network import Network, NetworkArgs
from infra.operators import Operators, OperatorsArgs
from infra.queues import Queues, QueuesArgs
from infra.settings import load
from infra.slices import TpuSlices, TpuSlicesArgs
from infra.storage import checkpoint_bucket
from infra.training import training_job

settings = load(pulumi.Config())
cloud, name = settings.cloud, settings.cluster.name

google = gcp.Provider("google", project=cloud.project, region=cloud.region, zone=cloud.zone)
bucket = checkpoint_bucket("checkpoints", settings.checkpoint_bucket, cloud.region, ResourceOptions(provider=google))
apis = GoogleApis("apis", cloud.project, ResourceOptions(provider=google))
on_google = ResourceOptions(provider=google, depends_on=[apis])
network = Network("network", NetworkArgs(name, cloud.region), on_google)
repository = image_repository("images", name, cloud.region, on_google)
image = image_reference("trainer", settings.image, repository)
nodes = NodeIdentity("nodes", NodeIdentityArgs(cloud.project, f"{name}-nodes", repository), on_google)
on_network = ResourceOptions(provider=google, depends_on=[network, nodes])
cluster = Cluster("cluster", ClusterArgs(cloud, settings.cluster, network, nodes.email), on_network)
in_cluster = ResourceOptions(provider=google, depends_on=[cluster])
slices = TpuSlices("slices", TpuSlicesArgs(cloud, name, cluster.name, nodes.email, settings.slices), in_cluster)
number = project_number(cloud.project, InvokeOutputOptions(provider=google, depends_on=[apis]))
namespaces = [team.namespace for team in settings.teams.values()]
access = TrainerAccess(
    "access", TrainerAccessArgs(cloud.project, number, bucket.name, settings.dataset_bucket, namespaces), in_cluster
)

kubernetes = kubernetes_provider("kubernetes", cluster.endpoint, ResourceOptions(depends_on=[cluster]))
on_cluster = ResourceOptions(provider=kubernetes, depends_on=[cluster])
operators = Operators("operators", OperatorsArgs(settings.slices.values(), settings.scheduling), on_cluster)
on_operators = ResourceOptions(provider=kubernetes, depends_on=[operators])
placement = settings.scheduling.placement
queues = Queues("queues", QueuesArgs(settings.slices, settings.teams, placement), on_operators)
training_job(settings, image, ResourceOptions(provider=kubernetes, depends_on=[queues, slices, access]))

pulumi.export("cluster", cluster.name)
pulumi.export("region", cloud.region)
pulumi.export("checkpoint_bucket", bucket.url)
pulumi.export("queues", {team: settings.teams[team].namespace for team in settings.teams})
pulumi.export("job", {"name": settings.job.name, "namespace": settings.job_team.namespace, "queue": settings.job.team})
pulumi.export("job_spec", job_spec(settings).model_dump())
