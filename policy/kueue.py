"""The queues of a plan.

Owns how Kueue's objects say which chips they give out to whom. What is wrong with them is the business
of the rules.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from infra.names import TPU_RESOURCE
from policy.resources import at, chips, every, namespace, object_name, of_kind
from policy.rule import Declared
from policy.slices import TpuPool

_CONFIGURATION_FILE = "controller_manager_config.yaml"
"""Key in the ConfigMap that Kueue's chart makes (https://github.com/kubernetes-sigs/kueue, charts/kueue)."""


@dataclass(frozen=True)
class Flavor:
    """A ResourceFlavor: nodes that are alike."""

    resource: Declared

    @property
    def name(self) -> str:
        return object_name(self.resource)

    @property
    def taints(self) -> set[str]:
        """Their keys."""
        return {at(taint, "key") for taint in every(self.resource.properties, "spec", "nodeTaints")}

    @property
    def topology(self) -> str | None:
        """Of its slices."""
        return at(self.resource.properties, "spec", "nodeLabels", "cloud.google.com/gke-tpu-topology")

    @property
    def topology_name(self) -> str | None:
        """The way from a host to its slice, where Kueue places jobs."""
        return at(self.resource.properties, "spec", "topologyName")

    def counts(self, pool: TpuPool) -> bool:
        """Whether the nodes of a slice are of this flavor."""
        labels = at(self.resource.properties, "spec", "nodeLabels") or {}
        return bool(labels) and all(pool.labels.get(key) == value for key, value in labels.items())


@dataclass(frozen=True)
class ChipQuota:
    """Chips of one flavor in a ClusterQueue."""

    queue: Declared
    flavor: str
    nominal: float
    borrowing_limit: float | None
    lending_limit: float | None


def flavors(resources: Iterable[Declared]) -> list[Flavor]:
    """All flavors."""
    return [Flavor(resource) for resource in of_kind(resources, "ResourceFlavor")]


def chip_quotas(resources: Iterable[Declared]) -> list[ChipQuota]:
    """The chips of all ClusterQueues."""
    return [
        ChipQuota(
            queue,
            at(flavor, "name"),
            chips(at(resource, "nominalQuota") or 0),
            _limit(at(resource, "borrowingLimit")),
            _limit(at(resource, "lendingLimit")),
        )
        for queue in of_kind(resources, "ClusterQueue")
        for flavor in _flavors_of(queue)
        for resource in every(flavor, "resources")
        if at(resource, "name") == TPU_RESOURCE
    ]


def flavor_names(queue: Declared) -> list[str]:
    """The flavors that a ClusterQueue gives out."""
    return [at(flavor, "name") for flavor in _flavors_of(queue)]


def covered(queue: Declared) -> set[str]:
    """The resources that a ClusterQueue counts."""
    groups = every(queue.properties, "spec", "resourceGroups")
    return {name for group in groups for name in every(group, "coveredResources")}


def checks_of(queue: Declared, flavor: str) -> list[str]:
    """The admission checks that a job on a flavor waits for."""
    checks = every(queue.properties, "spec", "admissionChecksStrategy", "admissionChecks")
    return [at(check, "name") for check in checks if flavor in (every(check, "onFlavors") or [flavor])]


def cluster_queue_of(job_set: Declared, queue_name: str, resources: Iterable[Declared]) -> Declared | None:
    """The ClusterQueue behind the queue that a JobSet names."""
    resources = list(resources)
    targets = [
        at(queue.properties, "spec", "clusterQueue")
        for queue in of_kind(resources, "LocalQueue")
        if (namespace(queue), object_name(queue)) == (namespace(job_set), queue_name)
    ]
    return next((queue for queue in of_kind(resources, "ClusterQueue") if object_name(queue) in targets), None)


def configurations(resources: Iterable[Declared]) -> list[Mapping[str, Any]]:
    """Kueue's own configuration, as often as the plan shows it.

    A program hands it to the chart; the engine shows policies what the chart makes of it.
    """
    return [yaml.safe_load(written) for written in _written(resources)]


def team_namespaces(resources: Iterable[Declared]) -> list[Declared]:
    """The namespaces whose jobs Kueue holds back."""
    resources = list(resources)
    selectors = [
        at(settings, "managedJobsNamespaceSelector", "matchLabels") or {} for settings in configurations(resources)
    ]
    return [
        found
        for found in of_kind(resources, "Namespace")
        if any(selector and selector.items() <= _labels(found).items() for selector in selectors)
    ]


def _labels(found: Declared) -> Mapping[str, Any]:
    return at(found.properties, "metadata", "labels") or {}


def _flavors_of(queue: Declared) -> list[Any]:
    groups = every(queue.properties, "spec", "resourceGroups")
    return [flavor for group in groups for flavor in every(group, "flavors")]


def _limit(written: Any) -> float | None:
    return None if written is None else chips(written)


def _written(resources: Iterable[Declared]) -> Iterator[str]:
    for resource in resources:
        if resource.type == "kubernetes:core/v1:ConfigMap":
            found = at(resource.properties, "data", _CONFIGURATION_FILE)
            # JobSet's chart calls its own file the same.
            if found is not None and "kueue" in found:
                yield found
        if resource.type.startswith("kubernetes:helm.sh/"):
            found = at(resource.properties, "values", "managerConfig", "controllerManagerConfigYaml")
            if found is not None:
                yield found
