"""The outputs of a stack, and the review that its preview logs. People, scripts, the sandbox and the next preview read
the outputs."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as kubernetes

from infra.cluster import running_jobs
from infra.cluster.kubernetes import UNREACHABLE, ApiServer, Json
from infra.gke_cluster import ClusterOutputs
from infra.guard import Guard
from infra.objects import KubernetesObject
from infra.review.admission.rehearsal import without_deleted
from infra.review.answers import answers
from infra.review.review import REVIEW_FILE, Known, Review, review
from infra.review.table import as_text
from infra.stack.cost import BILL_OUTPUT, Bill, read_bill
from infra.stack.manifests import owner_annotations
from infra.stack.names import PUBLISHED, PUBLISHED_KEY
from infra.stack.published import Published
from infra.stack.settings.stack import Settings
from infra.stack.submission import job_specs
from workloads.preflight_result import cache_folder, cached_all


def export_outputs(settings: Settings, cluster: ClusterOutputs, bucket: gcp.storage.Bucket, bill: Bill) -> None:
    """Export the location of cluster, jobs, queues and files, the data for the trainer, and the bill.

    `job` and `job_spec` are those of the first training job. Without one, `job` is the first of any kind. A stack
    without jobs has neither.
    """
    pulumi.export("cluster", cluster.name)
    pulumi.export("endpoint", cluster.endpoint)
    pulumi.export("region", settings.cloud.region)
    if settings.cluster.existing:
        pulumi.export("location", settings.cluster.existing.location)
    pulumi.export("checkpoint_bucket", bucket.url)
    pulumi.export("queues", {name: team.namespace for name, team in settings.teams.items()})
    references = {
        name: {"name": name, "namespace": settings.team_of(job).namespace, "queue": job.team}
        for name, job in settings.jobs.items()
    }
    for first in [*settings.training_jobs, *settings.jobs][:1]:
        pulumi.export("job", references[first])
    for spec in list(job_specs(settings).values())[:1]:
        pulumi.export("job_spec", spec.model_dump())
    pulumi.export("jobs", [{**reference, "kind": settings.jobs[name].kind} for name, reference in references.items()])
    export_bill(bill)


def export_bill(bill: Bill) -> None:
    """Export the bill of the stack, without the difference to the previous bill, which an `up` without changes would
    change."""
    pulumi.export(BILL_OUTPUT, bill.model_dump(exclude={"delta"}))


async def deployed_bill() -> Bill | None:
    """Return the bill that the last `up` of this stack exported; `None` before the first. Only for previews.

    This calls the engine's own function, because a StackReference would add a resource to the state. The function reads
    the state while an `up` may write it, and a state in a folder is then not always complete ("failed to load
    checkpoint: EOF").
    """
    name = f"{pulumi.get_organization()}/{pulumi.get_project()}/{pulumi.get_stack()}"
    found = await pulumi.runtime.invoke_async("pulumi:pulumi:readStackOutputs", {"name": name})
    return read_bill(found["outputs"].get(BILL_OUTPUT))


def log_review(
    settings: Settings,
    guard: Guard,
    jobsets: Mapping[str, KubernetesObject],
    at: datetime,
    unchecked: str | None,
) -> None:
    """Log the review in a preview. An `up` is preceded by a preview. `jobsets` are those of all jobs, by job.
    `unchecked` is a section of the stack file."""

    async def log() -> None:
        deployed = await deployed_bill()
        # Without an exported bill there is no cluster to look for. A stack without its cluster has a bill, but costs
        # nothing.
        endpoint = await guard.endpoint() if deployed else None
        live = await _workloads(endpoint) if endpoint else None
        known = Known(
            at=at,
            preflights=cached_all(job_specs(settings), cache_folder(os.environ)),
            deployed=deployed if endpoint else None,
            workloads=None if live is None else without_deleted(settings, live),
            unchecked=unchecked,
        )
        found = _write_review(settings, known)
        if known.workloads:
            # If the engine refuses the plan, the program ends here.
            found = _write_review(settings, replace(known, kept=await kept_jobs(jobsets)))
        pulumi.log.info(f"review of {found.stack}\n\n{as_text(answers(found))}")

    if pulumi.runtime.is_dry_run():
        # The SDK waits for every output before the program ends.
        pulumi.Output.from_input(log())


def _write_review(settings: Settings, known: Known) -> Review:
    found = review(pulumi.get_stack(), settings, known)
    if REVIEW_FILE in os.environ:
        Path(os.environ[REVIEW_FILE]).write_text(found.model_dump_json())
    return found


async def kept_jobs(jobsets: Mapping[str, pulumi.CustomResource]) -> frozenset[str]:
    """Return the names of the jobs whose JobSets exist and are not replaced. Only for previews.

    In a preview, an object that is created or replaced has no ID (`Create` in
    pulumi-kubernetes/provider/pkg/provider/provider.go).
    """
    known = await asyncio.gather(*(jobset.id.is_known() for jobset in jobsets.values()), return_exceptions=True)
    return frozenset(name for name, exists in zip(jobsets, known, strict=True) if exists is True)


async def _workloads(endpoint: str) -> list[Json] | None:
    try:
        return await asyncio.to_thread(lambda: running_jobs.workloads(ApiServer.at(endpoint)))
    except UNREACHABLE as error:
        # Usually the Kubernetes provider ends the preview, perhaps before this line is logged.
        pulumi.log.warn(
            f"the cluster at {endpoint} is unreachable ({error}); Pulumi cannot preview JobSet and Kueue without it:"
            " run this where the cluster can be reached (`multislice doctor` finds out why it cannot)"
        )
        return None


def published_records(
    settings: Settings, image: pulumi.Input[str] | None, opts: pulumi.ResourceOptions
) -> "list[kubernetes.core.v1.ConfigMap]":
    """Declare what the stack publishes for the members of each team."""

    def record(team: str) -> pulumi.Output[str]:
        stack = pulumi.get_stack()
        found = pulumi.Output.from_input(image)
        return found.apply(lambda known: Published.of(stack, settings, team, known).text)

    return [
        kubernetes.core.v1.ConfigMap(
            f"published-{name}",
            metadata=kubernetes.meta.v1.ObjectMetaArgs(
                name=PUBLISHED, namespace=team.namespace, annotations=owner_annotations(settings.prefix)
            ),
            data={PUBLISHED_KEY: record(name)},
            opts=opts,
        )
        for name, team in settings.teams.items()
    ]
