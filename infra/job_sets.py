"""The jobs in the cluster, and beside each what it costs.

Owns the declaration of the JobSets, how a change to one is carried out, and the ConfigMaps by which a job's price
reaches its ledger; `infra.jobset` renders the one, `infra.bill` knows the other.
"""

from collections.abc import Mapping

import pulumi
import pulumi_kubernetes as kubernetes

from infra import jobset, names
from infra.bill import job_group_bills
from infra.kubernetes_objects import KubernetesObject
from infra.names import PRICE_KEY, price_name
from infra.placement import rewrites_node_selector
from infra.settings.jobs import AnyJob, Job
from infra.settings.stack import Settings
from infra.submission import submission


def job_sets(
    settings: Settings,
    image: pulumi.Input[str] | None,
    footings: Mapping[str, pulumi.Resource],
    opts: pulumi.ResourceOptions,
) -> list[KubernetesObject]:
    """The stack's jobs, each submitted to its team's queue; `image` is the trainer's.

    `footings` are what the slices of each group stand on.
    """
    return [_job_set(settings, job, image, footings, opts) for job in settings.jobs.values()]


def _job_set(
    settings: Settings,
    job: AnyJob,
    image: pulumi.Input[str] | None,
    footings: Mapping[str, pulumi.Resource],
    opts: pulumi.ResourceOptions,
) -> KubernetesObject:
    """One job.

    What JobSet and Kueue refuse to change while the job runs replaces it, and so does the replacement
    of its slices' footing. A second one of the same name cannot stand beside the first: it is deleted, then
    made anew.
    """
    submitted = submission(settings, job, image)
    fixed = [names.MAX_TIME_LABEL] + [names.PRIORITY_LABEL] * rewrites_node_selector(submitted.groups)
    paths = ["spec", *(f'metadata.labels["{label}"]' for label in fixed)]
    own = pulumi.ResourceOptions(
        replace_on_changes=paths,
        replace_with=[footings[group] for group in submitted.groups],
        delete_before_replace=True,
        aliases=former_names(settings, "training"),
    )
    return KubernetesObject(f"job-{job.name}", jobset.render(submitted), pulumi.ResourceOptions.merge(opts, own))


def former_names(settings: Settings, name: str) -> list[pulumi.Alias]:
    """How the state of a stack knows what belongs to its only job, from before a stack could have several."""
    return [pulumi.Alias(name=name)] if len(settings.jobs) == 1 else []


def job_prices(settings: Settings, opts: pulumi.ResourceOptions) -> list[kubernetes.core.v1.ConfigMap]:
    """The prices of the stack's jobs, which their next starts record; none where one is not known.

    A changed price changes it in place, and nothing of the job.
    """
    renamed = pulumi.ResourceOptions(aliases=former_names(settings, "price"))
    prices = {job.name: usd_per_job_hour(settings, job) for job in settings.jobs.values()}
    return [
        kubernetes.core.v1.ConfigMap(
            f"price-{name}",
            metadata=kubernetes.meta.v1.ObjectMetaArgs(
                name=price_name(name), namespace=settings.team_of(settings.jobs[name]).namespace
            ),
            data={PRICE_KEY: str(usd_per_hour)},
            opts=pulumi.ResourceOptions.merge(opts, renamed),
        )
        for name, usd_per_hour in prices.items()
        if usd_per_hour is not None
    ]


def usd_per_job_hour(settings: Settings, job: Job) -> float | None:
    """What all slices of a job cost per hour; None where a group that it may run on has an unknown price,
    or they differ: pods are not told which of them Kueue chose."""
    bills = job_group_bills(job, settings.groups_of(job), settings.cloud, settings.prices, hours=None)
    prices = {bill.usd_per_hour for bill in bills}
    return prices.pop() if len(prices) == 1 else None
