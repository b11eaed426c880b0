"""What a stack tells of itself: its outputs.

Owns their names; people, scripts, the sandbox and the next preview read them.
"""

import pulumi
import pulumi_gcp as gcp

from infra import calls
from infra.bill import OUTPUT, Bill, read_bill
from infra.cluster import Cluster
from infra.job_spec import job_spec
from infra.stack_file import Settings


def export_outputs(
    settings: Settings, cluster: Cluster, bucket: gcp.storage.Bucket, image: pulumi.Input[str], bill: Bill
) -> None:
    """Where cluster, jobs, queues and files are, the first job's specification, what calls need, what it all costs."""
    pulumi.export("cluster", cluster.name)
    pulumi.export("endpoint", cluster.endpoint)
    pulumi.export("region", settings.cloud.region)
    pulumi.export("checkpoint_bucket", bucket.url)
    pulumi.export("queues", {name: team.namespace for name, team in settings.teams.items()})
    job, namespace = settings.job, settings.job_team.namespace
    place = {"name": job.name, "namespace": namespace, "queue": job.team}
    pulumi.export("job", place)
    pulumi.export("jobs", [{**place, "kind": "training"}])
    pulumi.export("job_spec", job_spec(settings).model_dump())
    pulumi.export(calls.OUTPUT, calls.call_settings(settings, image))
    export_bill(bill)
    if settings.environment:
        pulumi.export("environment", settings.environment.model_dump())


def export_bill(bill: Bill) -> None:
    """What the stack costs, less the difference to before: an `up` that changes nothing would change that."""
    pulumi.export(OUTPUT, bill.model_dump(exclude={"delta"}))


async def deployed_bill() -> Bill | None:
    """The bill that the last `up` of this stack exported; None before the first.

    It outlives a destroy that keeps the bucket: only a cluster that exists makes it a deployed one.
    The engine's own function is asked, since a StackReference would be one more resource in the state.
    """
    name = f"{pulumi.get_organization()}/{pulumi.get_project()}/{pulumi.get_stack()}"
    found = await pulumi.runtime.invoke_async("pulumi:pulumi:readStackOutputs", {"name": name})
    return read_bill(found["outputs"].get(OUTPUT))
