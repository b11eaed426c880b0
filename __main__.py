"""A stack file becomes a cluster with TPU slices, queues and running jobs."""

import pulumi
import pulumi_gcp as gcp
from pulumi import InvokeOutputOptions, ResourceOptions

from infra.cluster import Cluster, ClusterArgs, Network, NetworkArgs
from infra.cost import bill
from infra.guard import Guard
from infra.identity import (
    GoogleApis,
    NodeIdentity,
    NodeIdentityArgs,
    TrainerAccess,
    TrainerAccessArgs,
    project_number,
    trainers,
)
from infra.jobs import job_prices, job_secrets, job_sets
from infra.live import explain_stuck_deletes
from infra.monitoring import monitoring
from infra.objects import kubernetes_provider
from infra.operators import Operators, OperatorsArgs
from infra.outputs import export_outputs, log_review
from infra.queues import Queues, QueuesArgs
from infra.readiness import now, require_own_values, require_time_left
from infra.settings.read import load
from infra.slices import TpuSlices, TpuSlicesArgs
from infra.storage import (
    CheckpointBucketArgs,
    built_image,
    checkpoint_bucket,
    foreign_repositories,
    image_reference,
    image_repository,
)

settings = load(pulumi.Config())
cloud, name, labels = settings.cloud, settings.cluster.name, settings.resource_labels

google = gcp.Provider("google", project=cloud.project, region=cloud.region, zone=cloud.zone)
allowed = [*require_time_left(settings.budget, settings.environment, now()), *require_own_values(settings)]
guard = Guard(settings, google, allowed)
apis = GoogleApis("apis", cloud.project, ResourceOptions(provider=google, depends_on=[guard.ground]))
on_google = ResourceOptions(provider=google, depends_on=[apis])
kept = CheckpointBucketArgs(settings.checkpoint_bucket, cloud.region, labels, settings.environment is not None)
bucket = checkpoint_bucket("checkpoints", kept, on_google)
network = Network("network", NetworkArgs(name, cloud.region, settings.network, settings.second_network), on_google)
repository = image_repository("images", name, cloud.region, labels, on_google)
built = built_image("trainer", settings.image, repository)
image = image_reference(settings.image, built, repository)
node_args = NodeIdentityArgs(cloud.project, f"{name}-nodes", repository, foreign_repositories(settings))
nodes = NodeIdentity("nodes", node_args, on_google)
on_network = ResourceOptions(provider=google, depends_on=[network, nodes])
cluster_args = ClusterArgs(cloud, settings.cluster, network, nodes.email, labels, settings.mounted_bucket is not None)
cluster = Cluster("cluster", cluster_args, on_network)
in_cluster = ResourceOptions(provider=google, depends_on=[cluster])
kubernetes = kubernetes_provider("kubernetes", cluster.endpoint, ResourceOptions(depends_on=[cluster]))
footings = guard.footings(kubernetes)
on_footing = ResourceOptions(provider=google, depends_on=[cluster, *footings.values()])
slices_args = TpuSlicesArgs(
    cloud, name, cluster.name, cluster.endpoint, nodes.email, settings.slices, labels, network.second
)
slices = TpuSlices("slices", slices_args, on_footing)
number = project_number(cloud.project, InvokeOutputOptions(provider=google, depends_on=[apis]))
members = trainers(cloud.project, number, settings.written_folders, nodes.email)
access_args = TrainerAccessArgs(members, settings.written_folders, bucket.name, settings.dataset_bucket)
access = TrainerAccess("access", access_args, in_cluster)

on_cluster = ResourceOptions(provider=kubernetes, depends_on=[cluster], deleted_with=cluster.resource)
operators_args = OperatorsArgs(settings.slices.values(), settings.scheduling, slices.first_queued)
operators = Operators("operators", operators_args, on_cluster)
on_operators = ResourceOptions(provider=kubernetes, depends_on=[operators], deleted_with=cluster.resource)
held = explain_stuck_deletes(cluster.endpoint)
placement = settings.scheduling.placement
on_hosts, levels, heads = settings.host_network_teams, settings.pod_levels, settings.head_limits
monitored = settings.monitoring.enabled
queues_args = QueuesArgs(
    settings.slices, settings.teams, placement, on_hosts, levels, heads, settings.network, monitored, held
)
queues = Queues("queues", queues_args, on_operators)
on_queues = ResourceOptions(provider=kubernetes, depends_on=[queues], deleted_with=cluster.resource)
secrets = job_secrets(settings, pulumi.Config(), on_queues)
prices = job_prices(settings, on_queues)
watched = monitoring(settings, queues, on_operators)
on_all = ResourceOptions(provider=kubernetes, depends_on=[queues, slices, access, *secrets, *prices])
jobs = job_sets(settings, image, footings, on_all)
declared = [apis, bucket, network, repository, nodes, cluster, slices, access, operators, queues, *jobs, *watched]
guard.close([*declared, built] if built else declared, on_operators)

export_outputs(settings, cluster, bucket, image, bill(settings, step_seconds={}, deployed=None))
log_review(settings, guard, now())
