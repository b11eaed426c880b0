"""The job's secrets in the cluster: one Kubernetes Secret in the namespace of the job's team.

Owns the only way that values of secrets go, from Pulumi's configuration to that object, and what is
told when one of them changes. Which there are says `Settings.secrets`; how pods come by them is the
business of `infra.pods`.
"""

from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes

from infra.hidden import SECTION
from infra.pods import secret_name
from infra.stack_file import Settings


def job_secrets(
    settings: Settings, config: pulumi.Config, opts: pulumi.ResourceOptions
) -> list[kubernetes.core.v1.Secret]:
    """The Secret of the stack's job; none without secrets.

    A changed value changes it in place: the object has the name that running pods were made with.
    """
    if not settings.secrets:
        return []
    name, namespace = secret_name(settings.job), settings.job_team.namespace
    watched = pulumi.ResourceHookBinding(before_update=[_rotation_told(settings.job.name, namespace)])
    return [
        kubernetes.core.v1.Secret(
            "secrets",
            metadata=kubernetes.meta.v1.ObjectMetaArgs(name=name, namespace=namespace),
            string_data=config.require_secret_object(SECTION),
            opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(hooks=watched)),
        )
    ]


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

    return pulumi.ResourceHook("changed-secrets-are-told", tell, pulumi.ResourceHookOptions(on_dry_run=True))


async def _data(inputs: Mapping[str, Any]) -> Mapping[str, str]:
    """The Secret's data, which the SDK hands to a hook as an output."""
    return await pulumi.Output.from_input(inputs.get("data", {})).future() or {}
