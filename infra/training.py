"""The training job in the cluster, and beside it what it costs.

Owns the declaration of the JobSet, how a change to it is carried out, and the ConfigMap by which the job's price
reaches its ledger; `infra.jobset` renders the one, `infra.bill` knows the other.
"""

import pulumi
import pulumi_kubernetes as kubernetes

from infra import jobset
from infra.bill import job_group_bills
from infra.kubernetes_objects import KubernetesObject
from infra.placement import rewrites_node_selector
from infra.pods import PRICE_KEY, price_name
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


def job_price(settings: Settings, opts: pulumi.ResourceOptions) -> list[kubernetes.core.v1.ConfigMap]:
    """The price of the stack's job, which its next start records; none where it is not known.

    A changed price changes it in place, and nothing of the job.
    """
    usd_per_hour = usd_per_job_hour(settings)
    if usd_per_hour is None:
        return []
    return [
        kubernetes.core.v1.ConfigMap(
            "price",
            metadata=kubernetes.meta.v1.ObjectMetaArgs(
                name=price_name(settings.job), namespace=settings.job_team.namespace
            ),
            data={PRICE_KEY: str(usd_per_hour)},
            opts=opts,
        )
    ]


def usd_per_job_hour(settings: Settings) -> float | None:
    """What all slices of the stack's job cost per hour; None where a group that it may run on has an unknown price,
    or they differ: pods are not told which of them Kueue chose."""
    bills = job_group_bills(settings.job, settings.job_groups, settings.cloud, settings.prices, hours=None)
    prices = {bill.usd_per_hour for bill in bills}
    return prices.pop() if len(prices) == 1 else None
