"""The training job in the cluster.

Owns the declaration of the JobSet and how a change to it is carried out; `infra.jobset` renders it.
"""

import pulumi

from infra import jobset
from infra.job_spec import job_spec
from infra.kubernetes_objects import KubernetesObject
from infra.stack_file import Settings


def training_job(
    settings: Settings, image: pulumi.Input[str], footing: pulumi.Resource, opts: pulumi.ResourceOptions
) -> KubernetesObject:
    """The stack's training job on `image`, submitted to its team's queue.

    JobSet refuses changes of its spec, and a second one of the same name cannot stand beside the
    first: a changed job is deleted, then made anew. So is one whose `footing` is replaced.
    """
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
    replaced = pulumi.ResourceOptions(replace_on_changes=["spec"], replace_with=[footing], delete_before_replace=True)
    return KubernetesObject("training", manifest, pulumi.ResourceOptions.merge(opts, replaced))
