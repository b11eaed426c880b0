"""What a stack tells of itself: its outputs.

Owns their names; people, scripts, the sandbox and the next preview read them.
"""

import pulumi
import pulumi_gcp as gcp

from infra import calls
from infra.bill import OUTPUT, Bill, read_bill
from infra.cluster import Cluster
from infra.job_spec import job_specs
from infra.settings.jobs import Job
from infra.settings.stack import Settings


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
        pulumi.export(calls.OUTPUT, calls.call_settings(settings, image))
    export_bill(bill)
    if settings.environment:
        pulumi.export("environment", settings.environment.model_dump())


def _place(settings: Settings, job: Job) -> dict[str, str]:
    return {"name": job.name, "namespace": settings.team_of(job).namespace, "queue": job.team}


def export_bill(bill: Bill) -> None:
    """What the stack costs, less the difference to before: an `up` that changes nothing would change that."""
    pulumi.export(OUTPUT, bill.model_dump(exclude={"delta"}))


async def deployed_bill() -> Bill | None:
    """The bill that the last `up` of this stack exported; None before the first. For previews alone.

    The engine's own function is asked, since a StackReference would be one more resource in the state. It reads the
    state, which an `up` writes: from a folder that is not always whole ("failed to load checkpoint: EOF").
    """
    name = f"{pulumi.get_organization()}/{pulumi.get_project()}/{pulumi.get_stack()}"
    found = await pulumi.runtime.invoke_async("pulumi:pulumi:readStackOutputs", {"name": name})
    return read_bill(found["outputs"].get(OUTPUT))
