"""The jobs in the cluster: their JobSets, Secrets and prices, and the records for members and callers of functions.

The JobSet of a call is not a resource of the stack. The caller creates it, in the namespace and queue of their team,
from what the stack publishes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes

from infra import jobset
from infra.cost import job_group_bills
from infra.names import (
    FUNCTION_ANNOTATION,
    MAX_TIME_LABEL,
    PRICE_KEY,
    PRIORITY_LABEL,
    PUBLISHED,
    PUBLISHED_KEY,
    QUEUE_LABEL,
    price_name,
    secret_name,
    submitted_folder,
)
from infra.objects import OURS, KubernetesObject, Manifest
from infra.published import Published
from infra.settings.jobs import AnyJob, FunctionJob, Job, JobSlices, Priority, TrainingJob
from infra.settings.stack import Settings
from infra.settings.values import SECRETS
from infra.submission import Submission, assemble, submission
from workloads.spec import CALL_KEY_VARIABLE, CALL_SPEC_VARIABLE, CallSpec, load_preset

KEPT_SECONDS = 24 * 60 * 60
"""Seconds between a call's end and the deletion of its JobSet, with its logs and the key that verifies its result."""
GRACE_SECONDS = 10
"""Seconds in which a host of a call has to end. It needs no time except for the kernel's clean-up."""
_SECONDS_PER_HOUR, _SECONDS_PER_MINUTE = 3600, 60


def job_sets(
    settings: Settings,
    image: pulumi.Input[str] | None,
    footings: Mapping[str, pulumi.Resource],
    opts: pulumi.ResourceOptions,
) -> list[KubernetesObject]:
    """Declare the stack's jobs, each submitted to its team's queue.

    `image` is the trainer's image. `footings` are the records that each group's slices depend on (`infra.guard`).
    """
    return [_job_set(settings, job, image, footings, opts) for job in settings.jobs.values()]


def _job_set(
    settings: Settings,
    job: AnyJob,
    image: pulumi.Input[str] | None,
    footings: Mapping[str, pulumi.Resource],
    opts: pulumi.ResourceOptions,
) -> KubernetesObject:
    """Declare one job.

    Changes that JobSet or Kueue would refuse while it runs replace it, and so does a replaced footing of its slices.
    Two JobSets of the same name cannot coexist, so the old one is deleted first.
    """
    submitted = submission(settings, job, image)
    fixed = [QUEUE_LABEL, MAX_TIME_LABEL] + [PRIORITY_LABEL] * submitted.rewrites_node_selector
    own = pulumi.ResourceOptions(
        replace_on_changes=["spec", *(f'metadata.labels["{label}"]' for label in fixed)],
        replace_with=[footings[group] for group in submitted.groups],
        delete_before_replace=True,
        aliases=_former_names(settings.jobs, "training"),
    )
    return KubernetesObject(f"job-{job.name}", jobset.render(submitted), pulumi.ResourceOptions.merge(opts, own))


def _former_names(jobs: Mapping[str, Job], name: str) -> list[pulumi.Alias]:
    """Return the name under which an old stack, which could have only one job, has this resource of its job."""
    return [pulumi.Alias(name=name)] if len(jobs) == 1 else []


def job_prices(settings: Settings, opts: pulumi.ResourceOptions) -> "list[kubernetes.core.v1.ConfigMap]":
    """Declare the known prices of the stack's jobs, which each start records in the job's ledger.

    A changed price is updated in place and leaves the job unchanged.
    """
    renamed = pulumi.ResourceOptions(aliases=_former_names(settings.jobs, "price"))
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
    """Return what all slices of a job cost per hour.

    `None` if the price of a group that it may run on is unknown or if prices differ, because pods do not know which
    group Kueue chose."""
    bills = job_group_bills(job, settings.groups_of(job), settings.cloud, settings.prices, hours=None)
    prices = {bill.usd_per_hour for bill in bills}
    return prices.pop() if len(prices) == 1 else None


def job_secrets(
    settings: Settings, config: pulumi.Config, opts: pulumi.ResourceOptions
) -> "list[kubernetes.core.v1.Secret]":
    """Declare a Secret for each job that has secrets. This is the only way from Pulumi's configuration to the cluster.

    A changed value is updated in place, because running pods refer to the Secret by its name.
    """
    return [_job_secret(settings, job, config, opts) for job in settings.jobs.values() if settings.secrets_of(job)]


def _job_secret(
    settings: Settings, job: Job, config: pulumi.Config, opts: pulumi.ResourceOptions
) -> "kubernetes.core.v1.Secret":
    namespace, names = settings.team_of(job).namespace, settings.secrets_of(job)
    values = config.require_secret_object(SECRETS)
    own = pulumi.ResourceOptions(
        hooks=pulumi.ResourceHookBinding(before_update=[_announce_rotation(job.name, namespace)]),
        aliases=_former_names(settings.jobs, "secrets"),
    )
    return kubernetes.core.v1.Secret(
        f"secrets-{job.name}",
        metadata=kubernetes.meta.v1.ObjectMetaArgs(name=secret_name(job.name), namespace=namespace),
        string_data=values.apply(lambda all_values: {name: all_values[name] for name in names}),
        opts=pulumi.ResourceOptions.merge(opts, own),
    )


def _announce_rotation(job: str, namespace: str) -> pulumi.ResourceHook:
    """Return a hook that logs, also in previews, which secrets change and when the job will see them."""

    async def announce(change: pulumi.ResourceHookArgs) -> None:
        old, new = [await _data(inputs or {}) for inputs in (change.old_inputs, change.new_inputs)]
        changed = sorted(name for name in old.keys() & new.keys() if old[name] != new[name])
        if changed:
            pulumi.log.warn(
                f"secrets of job {job} change: {', '.join(changed)}. Its running pods keep the old values until the"
                " job's next start, whatever causes it. To restart it now from its last checkpoint:"
                f" kubectl delete jobset {job} -n {namespace}, then pulumi up --refresh"
            )

    name = f"changed-secrets-of-{job}-are-told"
    return pulumi.ResourceHook(name, announce, pulumi.ResourceHookOptions(on_dry_run=True))


async def _data(inputs: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the Secret's data, which the SDK passes to a hook as an output."""
    return await pulumi.Output.from_input(inputs.get("data", {})).future() or {}


def published_records(
    settings: Settings, image: pulumi.Input[str] | None, opts: pulumi.ResourceOptions
) -> "list[kubernetes.core.v1.ConfigMap]":
    """Declare what the stack publishes for the members of each team."""

    def record(team: str) -> pulumi.Output[str]:
        stack = pulumi.get_stack()
        found = pulumi.Output.from_input(image)
        return found.apply(lambda known: Published.of(stack, settings, team, known).model_dump_json(indent=1))

    return [
        kubernetes.core.v1.ConfigMap(
            f"published-{name}",
            metadata=kubernetes.meta.v1.ObjectMetaArgs(name=PUBLISHED, namespace=team.namespace, annotations=OURS),
            data={PUBLISHED_KEY: record(name)},
            opts=opts,
        )
        for name, team in settings.teams.items()
    ]


def submitted_jobset(published: Published, settings: Settings, job: AnyJob) -> Manifest:
    """Return the JobSet of a job that a member submits to the queue of the team. `settings` contain it.

    Its files are below the team's own folder of the bucket, because the pods of the team may write nowhere else.
    """
    root = f"gs://{published.bucket}/{submitted_folder(published.namespace)}"
    shape = settings.group_of(job).shape
    spec = assemble(job, shape, load_preset(job.preset), root) if isinstance(job, TrainingJob) else None
    usd = usd_per_job_hour(settings, job)
    usual = submission(settings, job, published.image)
    return jobset.render(replace(usual, queue=job.team, folder=f"{root}/{job.name}", spec=spec, usd_per_hour=usd))


@dataclass(frozen=True)
class CallJob:
    """What a call adds to the settings for its JobSet."""

    spec: CallSpec
    function: str
    """Name of the function, for display."""
    team: str
    group: str
    priority: Priority


def call_jobset(call: CallJob, settings: Published) -> dict[str, Any]:
    """Return the JobSet of a call."""
    assert settings.image, "multislice.place refuses a stack without an image"
    submitted = Submission(
        job=_function_job(call),
        slices=call.spec.slices,
        spec=None,
        folder=call.spec.folder,
        image=settings.image,
        checking_image=None,
        namespace=settings.namespaces[call.team],
        queue=call.team,
        groups={call.group: settings.slices[call.group]},
        placement=settings.placement,
        mounted_bucket=settings.mounted_bucket,
        compile_cache=None,
        secrets=(CALL_KEY_VARIABLE,),
    )
    manifest: dict[str, Any] = jobset.render(submitted)
    manifest["metadata"].setdefault("annotations", {})[FUNCTION_ANNOTATION] = call.function
    manifest["spec"]["ttlSecondsAfterFinished"] = KEPT_SECONDS
    return manifest


def _function_job(call: CallJob) -> FunctionJob:
    # The hosts end a function that takes too long and report where it was. Kueue ends a little later those that cannot.
    max_seconds = math.ceil(_SECONDS_PER_HOUR * call.spec.max_hours + 2 * _SECONDS_PER_MINUTE * call.spec.start_minutes)
    return FunctionJob(
        name=call.spec.id,
        team=call.team,
        slices=JobSlices(group=call.group, count=call.spec.slices.count),
        call=call.spec,
        priority=call.priority,
        max_restarts=0,
        grace_seconds=GRACE_SECONDS,
        max_hours=max_seconds / _SECONDS_PER_HOUR,
    )


def call_secret(call: Mapping[str, Any], private_key: str) -> dict[str, Any]:
    """Return the Secret with the key of a call. `call` is the JobSet on the API server; they are deleted together."""
    metadata = call["metadata"]
    owner = {key: call[key] for key in ("apiVersion", "kind")} | {key: metadata[key] for key in ("name", "uid")}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": secret_name(metadata["name"]),
            "namespace": metadata["namespace"],
            "ownerReferences": [owner],
        },
        "type": "Opaque",
        "stringData": {CALL_KEY_VARIABLE: private_key},
    }


def call_spec_of(manifest: Mapping[str, Any]) -> CallSpec | None:
    """Return the call that a JobSet is for; `None` if it is not for a call."""
    for replicated in manifest["spec"]["replicatedJobs"]:
        for container in replicated["template"]["spec"]["template"]["spec"]["containers"]:
            for variable in container.get("env", []):
                if variable["name"] == CALL_SPEC_VARIABLE:
                    return CallSpec.model_validate_json(variable["value"])
    return None
