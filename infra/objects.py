"""Kubernetes objects: as plain manifests, and as Pulumi resources in the stack's cluster."""

from collections.abc import Mapping
from typing import Any, cast

import pulumi
import pulumi_kubernetes as kubernetes

from infra.kubernetes import kubeconfig
from infra.names import STACK_ANNOTATION

type Manifest = dict[str, object]

OURS = {"pulumi.com/patchForce": "true"}
"""Reverts what another program has changed. Without it an update ends in a conflict, except with kubectl, whose changes
the provider always reverts
(https://www.pulumi.com/registry/packages/kubernetes/how-to-guides/managing-resources-with-server-side-apply)."""
WAIT_FOR = "pulumi.com/waitFor"
"""Annotation with the condition under which the provider counts an object as created."""


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


def part(
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


def manifest(
    api_version: str,
    kind: str,
    name: str,
    namespace: str | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **fields: object,
) -> Manifest:
    """Return the manifest of an object. `fields` are all fields except its type and metadata."""
    metadata: Manifest = {"name": name}
    for key, value in (("namespace", namespace), ("labels", labels), ("annotations", annotations)):
        if value:
            metadata[key] = value
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def marks(prefix: str) -> dict[str, str]:
    """Return the annotations of the stack's objects. In an existing cluster, where other stacks may have objects too,
    the `prefix` of its names says whose they are."""
    return {**OURS, STACK_ANNOTATION: prefix} if prefix else OURS


def mark_ours(manifest: Mapping[str, object], prefix: str = "") -> Manifest:
    """Return the object with the annotations of the stack's objects."""
    metadata = cast(dict[str, Any], manifest["metadata"])
    annotations = {**metadata.get("annotations", {}), **marks(prefix)}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


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
