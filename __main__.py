"""The Pulumi program: turns a stack file into a cluster with TPU slices, queues and running jobs."""

from datetime import UTC, datetime
from functools import partial

import pulumi
import pulumi_gcp as gcp
from pulumi import ResourceOptions

from infra import storage
from infra.budget import budget_alerts
from infra.configuration import load, requirements
from infra.existing.find import find
from infra.fleet import Fleet, FleetArgs
from infra.foundation import Foundation, FoundationArgs
from infra.guard import Guard
from infra.job import Job, JobArgs
from infra.objects import after, kubernetes_provider
from infra.outputs import export_outputs, log_review, published_records
from infra.stack.cost import bill
from infra.stack.settings.values import NAMESPACE

settings, now = load(pulumi.Config(NAMESPACE)), datetime.now(UTC)
cloud = settings.cloud
google = gcp.Provider("google", project=cloud.project, region=cloud.region, zone=cloud.zone)

on_google = partial(after, google)
found = find(settings, google)
guard = Guard(settings, google, [*requirements(settings, now), *(found.requirements if found else ())])
foundation = Foundation("foundation", FoundationArgs.of(settings, found), on_google(guard.slice_dependencies))
bucket = storage.checkpoint_bucket("checkpoints", storage.BucketArgs.of(settings), on_google(foundation.apis))
built = storage.built_image("trainer", settings.image, foundation.repository)
image = storage.image_reference(settings.image, built, foundation.repository)

cluster = foundation.cluster
kubernetes = kubernetes_provider("kubernetes", cluster.endpoint, ResourceOptions(depends_on=[foundation]))
markers = guard.markers(kubernetes)
on_both = ResourceOptions(providers=[google, kubernetes], depends_on=[foundation, bucket, *markers.values()])
fleet = Fleet("fleet", FleetArgs.of(settings, cluster), on_both)
jobs_args = {name: JobArgs.of(settings, name, fleet, image, markers) for name in settings.jobs}
jobs = {name: Job(name, args, ResourceOptions(provider=kubernetes)) for name, args in jobs_args.items()}

alerts = budget_alerts(settings, foundation.project_number, on_google(foundation.apis))
records = published_records(settings, image, after(kubernetes, fleet, deleted_with=cluster.resource))
declared = [foundation, bucket, fleet, *jobs.values(), *records, *alerts]
guard.close([*declared, built] if built else declared, after(kubernetes, fleet, deleted_with=cluster.resource))
export_outputs(settings, cluster, bucket, bill(settings, step_seconds={}, deployed=None))
jobsets = {name: job.jobset for name, job in jobs.items()}
log_review(settings, guard, jobsets, now, found.unchecked if found else None)
