"""What is collected of a stack, its alerts and its dashboard, in the cluster.

Owns their declaration; what they are is rendered by the other modules of this package.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi

from infra.monitoring import collection, dashboard, rules
from infra.names import JOBSET_NAMESPACE, KUEUE_NAMESPACE, Manifest
from infra.objects import KubernetesObject, owned
from infra.pods import admitted_pods
from infra.settings.stack import Settings

NAMESPACE = "multislice-monitoring"
"""Has the dashboard and no pods."""


@dataclass(frozen=True)
class MonitoringArgs:
    """Where trainers run."""

    namespaces: Sequence[str]
    """Of the teams."""
    queues: pulumi.Resource
    """Which make these namespaces."""


class Monitoring(pulumi.ComponentResource):
    """PodMonitorings of trainers and controllers, the alerts, and the dashboard."""

    def __init__(self, name: str, args: MonitoringArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tpu-multislice:infra:Monitoring", name, None, opts)
        for namespace in args.namespaces:
            self._declare(f"trainer-metrics-{namespace}", collection.of_trainers(namespace), [args.queues])
        for controller, namespace in (("jobset", JOBSET_NAMESPACE), ("kueue", KUEUE_NAMESPACE)):
            self._of_controller(controller, namespace)
        for about, manifest in rules.rules().items():
            self._declare(f"alerts-{about}", manifest)
        place = self._declare("monitoring", _namespace())
        self._declare("dashboard", dashboard.config_map(NAMESPACE), [place])
        self.register_outputs({})

    def _of_controller(self, controller: str, namespace: str) -> None:
        """In their order: a token is made for an account, and asked for with it."""
        declared: list[pulumi.Resource] = []
        for about, manifest in collection.of_controller(controller, namespace).items():
            declared.append(self._declare(f"{controller}-{about}", manifest, declared[-1:]))

    def _declare(
        self, name: str, manifest: Mapping[str, object], after: Sequence[pulumi.Resource] = ()
    ) -> KubernetesObject:
        return KubernetesObject(name, owned(manifest), pulumi.ResourceOptions(parent=self, depends_on=list(after)))


def monitoring(settings: Settings, queues: pulumi.Resource, opts: pulumi.ResourceOptions) -> list[pulumi.Resource]:
    """What the stack file asks for; nothing where it asks for none.

    Of all this, the trainers' metrics alone wait for the teams' namespaces: so the rest comes and goes beside them.
    """
    if not settings.monitoring.enabled:
        return []
    namespaces = [team.namespace for team in settings.teams.values()]
    return [Monitoring("monitoring", MonitoringArgs(namespaces, queues), opts)]


def _namespace() -> Manifest:
    labels = admitted_pods("restricted")
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}
