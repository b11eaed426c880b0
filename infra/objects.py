"""Kubernetes objects as Pulumi resources in the stack's cluster."""

import asyncio
from collections.abc import Mapping

import pulumi
import pulumi_kubernetes as kubernetes

from infra.cluster.kubernetes import UNREACHABLE, ApiServer, kubeconfig
from infra.cluster.running_jobs import holders


class KubernetesObject(pulumi.CustomResource):
    """One object of any kind, exactly as rendered.

    The SDK's own class for custom resources has a spec but no other top-level fields, such as the `value` of a
    WorkloadPriorityClass.
    """

    def __init__(self, name: str, manifest: Mapping[str, object], opts: pulumi.ResourceOptions) -> None:
        version = str(manifest["apiVersion"])
        # Pulumi's name for the group without a name is `core`.
        group = version if "/" in version else f"core/{version}"
        super().__init__(f"kubernetes:{group}:{manifest['kind']}", name, {**manifest}, opts)


def after(
    provider: pulumi.ProviderResource, *needed: pulumi.Resource, deleted_with: pulumi.Resource | None = None
) -> pulumi.ResourceOptions:
    """Return the options of a resource of `provider` that depends on others. With `deleted_with` it is deleted together
    with that resource and needs no deletion of its own."""
    return pulumi.ResourceOptions(provider=provider, depends_on=list(needed), deleted_with=deleted_with)


def child_options(
    parent: pulumi.Resource, *needed: pulumi.Resource, deleted_with: pulumi.Resource | None = None
) -> pulumi.ResourceOptions:
    """Return the options of a part of a component that depends on others. Stacks that an earlier version deployed have
    it without a parent."""
    at_top = pulumi.Alias(parent=pulumi.ROOT_STACK_RESOURCE)
    return pulumi.ResourceOptions(parent=parent, depends_on=list(needed), deleted_with=deleted_with, aliases=[at_top])


def child_prefix(component: str, usual: str) -> str:
    """Return the beginning of the names of a component's children: its own name, so that a program can have several.
    A component with its usual name, which this repository's program uses, has children with short names."""
    return "" if component == usual else f"{component}-"


def kubernetes_provider(
    name: str, endpoint: pulumi.Input[str], opts: pulumi.ResourceOptions | None = None
) -> kubernetes.Provider:
    """Return the provider for the cluster whose DNS endpoint is `endpoint`.

    The endpoint identifies the cluster: it changes only when the cluster is replaced. So a changed kubeconfig replaces
    nothing in the cluster.
    """
    return kubernetes.Provider(
        name,
        kubeconfig=pulumi.Output.from_input(endpoint).apply(kubeconfig),
        cluster_identifier=endpoint,
        # Otherwise a changed Secret would be replaced, and a job that restarts in the meantime would find none.
        enable_secret_mutable=True,
        enable_config_map_mutable=True,
        opts=opts,
    )


def explain_stuck_deletes(name: str, endpoint: pulumi.Output[str]) -> pulumi.ResourceHookBinding:
    """Return hooks that log what holds an object whose deletion failed, in the cluster behind `endpoint`. `name`
    is that of the hook.

    Other objects hold its finalizers: Kueue removes its own finalizer from a queue when no workload uses the queue,
    from a flavor when no queue uses it, and so on."""

    async def explain(failure: pulumi.ErrorHookArgs) -> bool:
        host = await endpoint.future() if failure.failed_operation == "delete" else None
        if host is not None:
            kind, name = failure.type.rpartition(":")[2], (failure.old_inputs or {})["metadata"]["name"]
            for reason in await asyncio.to_thread(_holders, host, kind, name):
                pulumi.log.error(f"{kind} {name} cannot be deleted: {reason}")
        return False

    return pulumi.ResourceHookBinding(on_error=[pulumi.ErrorHook(name, explain)])


def _holders(host: str, kind: str, name: str) -> list[str]:
    try:
        return list(holders(ApiServer.at(host), kind, name))
    except UNREACHABLE:
        return []
