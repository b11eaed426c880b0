"""Objects in the cluster as Pulumi resources."""

from collections.abc import Mapping
from typing import Any, cast

import pulumi
import pulumi_kubernetes as kubernetes

from infra.kubernetes import kubeconfig
from infra.names import OURS


class KubernetesObject(pulumi.CustomResource):
    """One object of any kind, exactly as rendered.

    The SDK's own class for custom resources has a spec but no other top-level fields, such as the
    `value` of a WorkloadPriorityClass.
    """

    def __init__(self, name: str, manifest: Mapping[str, object], opts: pulumi.ResourceOptions) -> None:
        version = str(manifest["apiVersion"])
        # Pulumi gives the group without a name one.
        group = version if "/" in version else f"core/{version}"
        super().__init__(f"kubernetes:{group}:{manifest['kind']}", name, {**manifest}, opts)


def owned(manifest: Mapping[str, object]) -> dict[str, object]:
    """The object with the mark of `OURS`."""
    metadata = cast(dict[str, Any], manifest["metadata"])
    return {**manifest, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), **OURS}}}


def kubernetes_provider(name: str, endpoint: pulumi.Output[str], opts: pulumi.ResourceOptions) -> kubernetes.Provider:
    """The provider for the cluster whose DNS endpoint is `endpoint`.

    The endpoint identifies the cluster: it changes when the cluster is replaced, and only then, so
    that nothing in the cluster is replaced for a changed kubeconfig.
    """
    return kubernetes.Provider(
        name,
        kubeconfig=endpoint.apply(kubeconfig),
        cluster_identifier=endpoint,
        # Else a changed secret is a new object in the old one's place, and a job that restarts in between has none.
        enable_secret_mutable=True,
        enable_config_map_mutable=True,
        opts=opts,
    )
