"""The Pulumi program: turns a stack file into a cluster with TPU slices, queues and running jobs."""

from functools import partial

import pulumi
import pulumi_gcp as gcp
from pulumi import InvokeOutputOptions, ResourceOptions

from infra import identity, readiness, storage
from infra.cluster import Cluster, ClusterArgs, Network, NetworkArgs
from infra.cost import bill
from infra.guard import Guard
from infra.jobs import job_prices, job_secrets, job_sets, published_records
from infra.live import explain_stuck_deletes
from infra.monitoring import monitoring
from infra.objects import after, kubernetes_provider
from infra.operators import Operators, OperatorsArgs
from infra.outputs import export_outputs, log_review
from infra.queues import Queues, QueuesArgs
from infra.settings.read import load
from infra.settings.values import NAMESPACE
from infra.slices import TpuSlices, TpuSlicesArgs

config = pulumi.Config(NAMESPACE)
settings, now = load(config), readiness.now()
cloud = settings.cloud
google = gcp.Provider("google", project=cloud.project, region=cloud.region, zone=cloud.zone)

on_google = partial(after, google)
guard = Guard(settings, google, readiness.requirements(settings, now))
apis = identity.GoogleApis("apis", cloud.project, on_google(guard.ground))
bucket = storage.checkpoint_bucket("checkpoints", storage.BucketArgs.of(settings), on_google(apis))
network = Network("network", NetworkArgs.of(settings), on_google(apis))
repository = storage.image_repository("images", settings, on_google(apis))
built = storage.built_image("trainer", settings.image, repository)
image = storage.image_reference(settings.image, built, repository)
nodes = identity.NodeIdentity("nodes", identity.NodeIdentityArgs.of(settings, repository), on_google(apis))
cluster = Cluster("cluster", ClusterArgs.of(settings, network, nodes.email), on_google(network, nodes))
kubernetes = kubernetes_provider("kubernetes", cluster.endpoint, ResourceOptions(depends_on=[cluster]))
footings = guard.footings(kubernetes)
slices_args = TpuSlicesArgs.of(settings, cluster, nodes.email, network.second)
slices = TpuSlices("slices", slices_args, on_google(cluster, *footings.values()))
number = identity.project_number(cloud.project, InvokeOutputOptions(provider=google, depends_on=[apis]))
access_args = identity.TrainerAccessArgs.of(settings, number, nodes.email, bucket.name)
access = identity.TrainerAccess("access", access_args, on_google(cluster))

in_cluster = partial(after, kubernetes, deleted_with=cluster.resource)
operators = Operators("operators", OperatorsArgs.of(settings, slices.first_queued), in_cluster(cluster))
queues = Queues("queues", QueuesArgs.of(settings, explain_stuck_deletes(cluster.endpoint)), in_cluster(operators))
secrets, prices = job_secrets(settings, config, in_cluster(queues)), job_prices(settings, in_cluster(queues))
watched = monitoring(settings, queues, in_cluster(operators))
jobs = job_sets(settings, image, footings, after(kubernetes, queues, slices, access, *secrets, *prices))
records = published_records(settings, image, in_cluster(queues))
declared = [apis, bucket, network, repository, nodes, cluster, slices, access, operators, queues, *jobs, *watched]
guard.close([*declared, *records, *([built] if built else [])], in_cluster(operators))
export_outputs(settings, cluster, bucket, bill(settings, step_seconds={}, deployed=None))
log_review(settings, guard, now)
