"""The jobs in the cluster: JobSets, their Secrets and prices, and what calls of functions need."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes

from infra import jobset, names
from infra.cost import job_group_bills
from infra.names import FUNCTION_ANNOTATION, PRICE_KEY, price_name, secret_name
from infra.objects import KubernetesObject
from infra.pods import rewrites_node_selector
from infra.settings.jobs import AnyJob, FunctionJob, Job, JobSlices, Priority
from infra.settings.schema import Placement, SliceGroup
from infra.settings.stack import Settings
from infra.settings.values import SECTION
from infra.submission import Submission, slice_spec, submission
from workloads.spec import CALL_KEY_VARIABLE, CALL_SPEC_VARIABLE, CallSpec, SliceSpec, Spec


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


def job_secrets(
    settings: Settings, config: pulumi.Config, opts: pulumi.ResourceOptions
) -> list[kubernetes.core.v1.Secret]:
    """The Secrets of the stack's jobs; none of a job that has no secrets.

    A changed value changes it in place: the object has the name that running pods were made with.
    """
    return [_job_secret(settings, job, config, opts) for job in settings.jobs.values() if settings.secrets_of(job)]


def _job_secret(
    settings: Settings, job: Job, config: pulumi.Config, opts: pulumi.ResourceOptions
) -> kubernetes.core.v1.Secret:
    namespace, names = settings.team_of(job).namespace, settings.secrets_of(job)
    values = config.require_secret_object(SECTION)
    own = pulumi.ResourceOptions(
        hooks=pulumi.ResourceHookBinding(before_update=[_rotation_told(job.name, namespace)]),
        aliases=former_names(settings, "secrets"),
    )
    return kubernetes.core.v1.Secret(
        f"secrets-{job.name}",
        metadata=kubernetes.meta.v1.ObjectMetaArgs(name=secret_name(job.name), namespace=namespace),
        string_data=values.apply(lambda all_values: {name: all_values[name] for name in names}),
        opts=pulumi.ResourceOptions.merge(opts, own),
    )


def _rotation_told(job: str, namespace: str) -> pulumi.ResourceHook:
    """A hook that says, in previews too, which secrets change and when the job sees it."""

    async def tell(change: pulumi.ResourceHookArgs) -> None:
        old, new = [await _data(inputs or {}) for inputs in (change.old_inputs, change.new_inputs)]
        changed = sorted(name for name in old.keys() & new.keys() if old[name] != new[name])
        if changed:
            pulumi.log.warn(
                f"secrets of job {job} change: {', '.join(changed)}. Its running pods keep what they started with;"
                " its next start, whatever the cause, takes the new ones. To start it again now, from its last"
                f" checkpoint: kubectl delete jobset {job} -n {namespace}, then pulumi up --refresh"
            )

    return pulumi.ResourceHook(f"changed-secrets-of-{job}-are-told", tell, pulumi.ResourceHookOptions(on_dry_run=True))


async def _data(inputs: Mapping[str, Any]) -> Mapping[str, str]:
    """The Secret's data, which the SDK hands to a hook as an output."""
    return await pulumi.Output.from_input(inputs.get("data", {})).future() or {}


CALLS_OUTPUT = "calls"
"""Name of the stack's output."""
KEPT_SECONDS = 24 * 60 * 60
"""Time between a call's end and the removal of its JobSet, with its logs and the key that verifies its result."""
GRACE_SECONDS = 10
"""A host ends at once when it is told to, but for what the kernel still does for it."""
_SECONDS_PER_HOUR, _SECONDS_PER_MINUTE = 3600, 60


class CallSettings(Spec):
    """What a stack tells those who call functions on its slices."""

    image: str
    """That the hosts run, by digest."""
    bucket: str
    """Name of the checkpoint bucket, which has the files of calls in the folders of their teams."""
    slices: Mapping[str, SliceGroup]
    namespaces: Mapping[str, str]
    """By team; a team's queue has the team's name."""
    placement: Placement
    mounted_bucket: str | None
    """Its files are the hosts' folder /datasets."""

    def slices_of(self, group: str, count: int) -> SliceSpec:
        """`count` slices of a group."""
        return slice_spec(self.slices[group].shape, count)


def call_settings(settings: Settings, image: pulumi.Input[str]) -> dict[str, Any]:
    """The output."""
    datasets = settings.datasets
    told = CallSettings(
        image="",
        bucket=settings.checkpoint_bucket,
        slices=settings.slices,
        namespaces={name: team.namespace for name, team in settings.teams.items()},
        placement=settings.scheduling.placement,
        mounted_bucket=datasets.bucket if datasets and datasets.mount else None,
    )
    return {**told.model_dump(mode="json"), "image": image}


@dataclass(frozen=True)
class CallJob:
    """What of a call its JobSet is rendered from."""

    spec: CallSpec
    function: str
    """Its name, for people."""
    team: str
    group: str
    priority: Priority


def call_jobset(call: CallJob, settings: CallSettings) -> dict[str, Any]:
    """The JobSet of a call."""
    submitted = Submission(
        job=_function_job(call),
        slices=call.spec.slices,
        spec=None,
        folder=call.spec.folder,
        image=settings.image,
        checking_image=None,
        namespace=settings.namespaces[call.team],
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


def call_secret(call: Mapping[str, Any], private_key: str) -> dict[str, Any]:
    """The Secret with the key of a call, by the JobSet that the API server has; it goes with the JobSet."""
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
    """The call that a JobSet is for; None: it is for none."""
    for replicated in manifest["spec"]["replicatedJobs"]:
        for container in replicated["template"]["spec"]["template"]["spec"]["containers"]:
            for variable in container.get("env", []):
                if variable["name"] == CALL_SPEC_VARIABLE:
                    return CallSpec.model_validate_json(variable["value"])
    return None


def _function_job(call: CallJob) -> FunctionJob:
    # The hosts end a function that takes too long and say where it was. Kueue ends those that cannot, a little later.
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
