"""What a stack exports, and the review that its preview logs."""

import asyncio
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pulumi
import pulumi_gcp as gcp

from infra import jobs, live
from infra.cluster import Cluster
from infra.cost import BILL_OUTPUT, Bill, read_bill
from infra.guard import Guard
from infra.review.review import REVIEW_FILE, Known, review
from infra.review.table import as_text
from infra.review.tables import tables
from infra.settings.jobs import Job
from infra.settings.stack import Settings
from infra.submission import job_specs
from workloads.preflight_result import cache_folder, cached_all


def export_outputs(
    settings: Settings, cluster: Cluster, bucket: gcp.storage.Bucket, image: pulumi.Input[str] | None, bill: Bill
) -> None:
    """Where cluster, jobs, queues and files are, what the trainer and calls need, and what it all costs.

    `job` and `job_spec` are those of the first training job. Without one, `job` is the first of any kind. A stack
    without jobs has neither.
    """
    pulumi.export("cluster", cluster.name)
    pulumi.export("endpoint", cluster.endpoint)
    pulumi.export("region", settings.cloud.region)
    pulumi.export("checkpoint_bucket", bucket.url)
    pulumi.export("queues", {name: team.namespace for name, team in settings.teams.items()})
    places = {name: _place(settings, job) for name, job in settings.jobs.items()}
    for first in [*settings.training_jobs, *settings.jobs][:1]:
        pulumi.export("job", places[first])
    for spec in list(job_specs(settings).values())[:1]:
        pulumi.export("job_spec", spec.model_dump())
    pulumi.export("jobs", [{**place, "kind": settings.jobs[name].kind} for name, place in places.items()])
    if image is not None:
        pulumi.export(jobs.CALLS_OUTPUT, jobs.call_settings(settings, image))
    export_bill(bill)
    if settings.environment:
        pulumi.export("environment", settings.environment.model_dump())


def _place(settings: Settings, job: Job) -> dict[str, str]:
    return {"name": job.name, "namespace": settings.team_of(job).namespace, "queue": job.team}


def export_bill(bill: Bill) -> None:
    """What the stack costs, less the difference to before: an `up` that changes nothing would change that."""
    pulumi.export(BILL_OUTPUT, bill.model_dump(exclude={"delta"}))


async def deployed_bill() -> Bill | None:
    """The bill that the last `up` of this stack exported; None before the first. For previews alone.

    The engine's own function is asked, since a StackReference would be one more resource in the state. It reads the
    state, which an `up` writes: from a folder that is not always whole ("failed to load checkpoint: EOF").
    """
    name = f"{pulumi.get_organization()}/{pulumi.get_project()}/{pulumi.get_stack()}"
    found = await pulumi.runtime.invoke_async("pulumi:pulumi:readStackOutputs", {"name": name})
    return read_bill(found["outputs"].get(BILL_OUTPUT))


def tell_in_preview(settings: Settings, guard: Guard, at: datetime) -> None:
    """Log the review in a preview; in an `up`, which had one before, nothing."""
    if pulumi.runtime.is_dry_run():
        # The SDK waits for every output before the program ends.
        pulumi.Output.from_input(_tell(settings, guard, at))


async def _tell(settings: Settings, guard: Guard, at: datetime) -> None:
    deployed = await deployed_bill()
    # A stack that is not up has no cluster to look for. Without its cluster a stack has a bill, but pays nothing.
    endpoint = await guard.endpoint() if deployed else None
    found = review(
        pulumi.get_stack(),
        settings,
        Known(
            at=at,
            preflights=cached_all(job_specs(settings), cache_folder(os.environ)),
            deployed=deployed if endpoint else None,
            workloads=await _workloads(endpoint) if endpoint else None,
        ),
    )
    if REVIEW_FILE in os.environ:
        Path(os.environ[REVIEW_FILE]).write_text(found.model_dump_json())
    pulumi.log.info(f"review of {found.stack}\n\n{as_text(tables(found))}")


async def _workloads(endpoint: str) -> list[dict[str, Any]] | None:
    try:
        return await asyncio.to_thread(lambda: live.workloads(live.connect(endpoint)))
    except live.UNREACHABLE as error:
        # In general the Kubernetes provider ends the preview, and may do so before this is told.
        pulumi.log.warn(
            f"the cluster at {endpoint} does not answer ({error}), and Pulumi cannot preview JobSet and Kueue without"
            " it: run this where the cluster can be reached (`multislice doctor` finds out why it cannot)"
        )
        return None
