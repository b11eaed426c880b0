"""The training job in the cluster.

Owns the declaration of the JobSet and how a change to it is carried out; `infra.jobset` renders it.
"""

import pulumi

from infra import jobset
from infra.kubernetes_objects import KubernetesObject
from infra.placement import rewrites_node_selector
from infra.stack_file import Settings
from infra.submission import submission


def training_job(
    settings: Settings, image: pulumi.Input[str], footing: pulumi.Resource, opts: pulumi.ResourceOptions
) -> KubernetesObject:
    """The stack's training job on `image`, submitted to its team's queue.

    What JobSet and Kueue refuse to change while the job runs replaces it, and so does the replacement
    of its `footing`. A second one of the same name cannot stand beside the first: it is deleted, then
    made anew.
    """
    submitted = submission(settings, image)
    fixed = [jobset.MAX_TIME_LABEL] + [jobset.PRIORITY_LABEL] * rewrites_node_selector(submitted.groups)
    paths = ["spec", *(f'metadata.labels["{label}"]' for label in fixed)]
    replaced = pulumi.ResourceOptions(replace_on_changes=paths, replace_with=[footing], delete_before_replace=True)
    return KubernetesObject("training", jobset.render(submitted), pulumi.ResourceOptions.merge(opts, replaced))
