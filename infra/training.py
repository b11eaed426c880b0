"""The training job in the cluster.

Owns the declaration of the JobSet and how a change to it is carried out; `infra.jobset` renders it.
"""

import pulumi

from infra import jobset
from infra.job_spec import job_spec
from infra.kubernetes_objects import KubernetesObject
from infra.slices import TpuSlices
from infra.stack_file import Settings


def training_job(
    settings: Settings, image: pulumi.Input[str], slices: TpuSlices, opts: pulumi.ResourceOptions
) -> KubernetesObject:
    """The stack's training job on `image`, submitted to its team's queue.

    JobSet refuses changes of its spec, and a second one of the same name cannot stand beside the
    first: a changed job is deleted, then made anew. So is a job whose slices are replaced, ahead of
    them: it saves and ends while it still has its hosts, and its queue never sees half a slice.
    """
    pools: list[pulumi.Resource] = [pool for group in settings.job_groups for pool in slices.pools[group]]
    manifest = jobset.render(
        jobset.Submission(
            spec=job_spec(settings),
            group_name=settings.job.slices.group,
            group=settings.job_group,
            namespace=settings.job_team.namespace,
            queue=settings.job.team,
            priority=settings.job.priority,
            image=image,
            max_restarts=settings.job.max_restarts,
        )
    )
    replaced = pulumi.ResourceOptions(
        replace_on_changes=["spec"], replace_with=pools, delete_before_replace=True, depends_on=[slices]
    )
    return KubernetesObject("training", manifest, pulumi.ResourceOptions.merge(opts, replaced))
