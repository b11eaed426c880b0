"""The jobs' secrets in the cluster: one Kubernetes Secret for each job, in the namespace of its team.

Owns the only way that values of secrets go, from Pulumi's configuration to that object, and what is
told when one of them changes. Which there are says `Settings.secrets`; how pods come by them is the
business of `infra.pods`.
"""

from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes

from infra.job_sets import former_names
from infra.names import secret_name
from infra.settings.jobs import Job
from infra.settings.stack import Settings
from infra.settings.values import SECTION


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
