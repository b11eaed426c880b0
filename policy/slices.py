"""The TPU slices of a plan, the jobs that run on them, and the queues that assign their chips."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from infra.stack.names import (
    ACCELERATOR_LABEL,
    MANAGED,
    NODE_POOL_LABEL,
    STACK_ANNOTATION,
    TOPOLOGY_LABEL,
    TPU_RESOURCE,
)
from infra.stack.tpu import SliceShape, all_shapes, shape_of
from policy.rule import CONFIG_MAP, NODE_POOL, Declared, at, every, object_name, select_kind, select_type

_MACHINE_PREFIXES = ("ct", "tpu")
"""Prefixes of all machine types with TPUs, including those that the table of TPUs does not have."""
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_UNITS = {"m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_SECONDS = {"h": 3600, "m": 60, "s": 1}
_CONFIGURATION_FILE = "controller_manager_config.yaml"
"""Key in the ConfigMap of Kueue's chart (https://github.com/kubernetes-sigs/kueue, charts/kueue)."""


@dataclass(frozen=True)
class TpuPool:
    """A node pool and its slice."""

    resource: Declared
    shape: SliceShape

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels of its nodes, including those that GKE sets."""
        return {
            **(at(self.resource.properties, "nodeConfig", "labels") or {}),
            NODE_POOL_LABEL: at(self.resource.properties, "name"),
            ACCELERATOR_LABEL: self.shape.accelerator,
            TOPOLOGY_LABEL: self.shape.topology,
        }

    @property
    def flex_start(self) -> bool:
        """Return whether its chips come by flex-start, queued or not."""
        return bool(at(self.resource.properties, "nodeConfig", "flexStart"))

    @property
    def preemptible(self) -> bool:
        """Return whether Google may take its hosts back. `preemptible` is the earlier name of spot."""
        spot = any(at(self.resource.properties, "nodeConfig", key) for key in ("spot", "preemptible"))
        return spot or self.flex_start

    @property
    def reservation_type(self) -> str | None:
        """Return how it uses reservations."""
        return at(self.resource.properties, "nodeConfig", "reservationAffinity", "consumeReservationType")

    @property
    def on_demand(self) -> bool:
        """Return whether it is billed at the full price for as long as it exists."""
        return not (self.preemptible or self.reservation_type == "SPECIFIC_RESERVATION")

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether its nodes have these labels."""
        return all(self.labels.get(key) == value for key, value in labels.items())


@dataclass(frozen=True)
class SliceJob:
    """A replicated job of a JobSet whose pods request chips: one Job per slice, one pod per host."""

    resource: Declared
    name: str
    """Name of the replicated job in the JobSet."""
    pod: Any

    @property
    def specification(self) -> Any:
        """Return the trainer's specification: the only environment variable with a JSON object that has a key
        `training`.

        Return None for a program that is not the trainer.
        """
        variables = (variable for container in every(self.pod, "containers") for variable in every(container, "env"))
        values = (_json(at(variable, "value") or "") for variable in variables)
        return next((value for value in values if isinstance(value, dict) and "training" in value), None)

    def runs_on(self, pools: Iterable[TpuPool]) -> bool:
        """Return whether node selector and required node affinity allow its pods on the nodes of any of the pools."""
        selector = at(self.pod, "nodeSelector") or {}
        terms = every(self.pod, "affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms")
        return any(
            pool.matches(selector) and (not terms or any(_selects(term, pool.labels) for term in terms))
            for pool in pools
        )


def is_tpu(pool: Declared) -> bool:
    """Return whether the machines of a node pool have TPUs."""
    machine_type = at(pool.properties, "nodeConfig", "machineType")
    return machine_type is not None and machine_type.startswith(_MACHINE_PREFIXES)


def shape(pool: Declared) -> SliceShape:
    """Return the slice of a TPU pool. Without a topology it is a slice of a single host.

    Raises:
        ValueError: GKE does not offer it. The message lists the nearest slices that it offers.
    """
    topology = at(pool.properties, "placementPolicy", "tpuTopology")
    return _shape(at(pool.properties, "nodeConfig", "machineType"), topology)


def tpu_pools(resources: Iterable[Declared]) -> list[TpuPool]:
    """Return the slices of a plan, except those that GKE does not offer: the rule `slice-offered` reports them."""
    found: list[TpuPool] = []
    for pool in filter(is_tpu, select_type(resources, NODE_POOL)):
        with suppress(ValueError):
            found.append(TpuPool(pool, shape(pool)))
    return found


def slice_jobs(resources: Iterable[Declared]) -> list[SliceJob]:
    """Return the replicated jobs that request chips."""
    found = (
        SliceJob(job_set, at(job, "name"), at(job, "template", "spec", "template", "spec"))
        for job_set in select_kind(resources, "JobSet")
        for job in every(job_set.properties, "spec", "replicatedJobs")
    )
    return [job for job in found if any(map(_takes_chips, every(job.pod, "containers")))]


def flavors(resources: Sequence[Declared]) -> dict[str, list[TpuPool]]:
    """Return the slices that each ResourceFlavor counts, by name of the flavor.

    In an existing cluster the slices of a flavor may exist too. Such a flavor is left out, because the plan does not
    have its slices.
    """
    pools = tpu_pools(resources)
    labels = {
        object_name(flavor): at(flavor.properties, "spec", "nodeLabels")
        for flavor in select_kind(resources, "ResourceFlavor")
    }
    found = {name: [pool for pool in pools if selected and pool.matches(selected)] for name, selected in labels.items()}
    return {name: counted for name, counted in found.items() if counted or name not in _in_existing_cluster(resources)}


def _in_existing_cluster(resources: Iterable[Declared]) -> set[str]:
    """Return the names of the flavors that say which stack of the cluster they belong to."""
    declared = select_kind(resources, "ResourceFlavor")
    return {object_name(each) for each in declared if at(each.properties, "metadata", "annotations", STACK_ANNOTATION)}


def quotas(resources: Iterable[Declared]) -> list[tuple[Declared, str, int]]:
    """Return ClusterQueue, flavor and number of chips of every quota of chips."""
    return [
        (queue, at(flavor, "name"), int(quantity(at(resource, "nominalQuota") or 0)))
        for queue in select_kind(resources, "ClusterQueue")
        for group in every(queue.properties, "spec", "resourceGroups")
        for flavor in every(group, "flavors")
        for resource in every(flavor, "resources")
        if at(resource, "name") == TPU_RESOURCE
    ]


def given_out(resources: Iterable[Declared]) -> Counter[str]:
    """Return the chips that all queues together have of each flavor."""
    total = Counter[str]()
    for _, flavor, chips in quotas(resources):
        total[flavor] += chips
    return total


def configurations(resources: Iterable[Declared]) -> list[Mapping[str, Any]]:
    """Return Kueue's own configuration, once for each place where the plan contains it.

    The program passes it to the chart, and the engine shows the chart's objects to policies.
    """
    found: list[Any] = []
    for resource in resources:
        if resource.type == CONFIG_MAP:
            written = at(resource.properties, "data", _CONFIGURATION_FILE)
            # JobSet's chart has a file of the same name.
            found.append(written if written and "kueue" in written else None)
        elif resource.type.startswith("kubernetes:helm.sh/"):
            found.append(at(resource.properties, "values", "managerConfig", "controllerManagerConfigYaml"))
    return [yaml.safe_load(written) for written in found if written is not None]


def ready_timeouts(resources: Iterable[Declared]) -> Iterator[tuple[str, int]]:
    """Yield how long Kueue waits until the pods of a job are ready: as Go writes it, such as `1h30m0s`, and in
    seconds."""
    for settings in configurations(resources):
        timeout = at(settings, "waitForPodsReady", "timeout")
        if timeout is not None:
            yield timeout, sum(int(count) * _SECONDS[unit] for count, unit in re.findall(r"(\d+)([hms])", timeout))


def team_namespaces(resources: Sequence[Declared]) -> list[Declared]:
    """Return the namespaces in which Kueue holds jobs back. The Kueue of an existing cluster is not in the plan."""
    keys = ("managedJobsNamespaceSelector", "matchLabels")
    selectors = [at(settings, *keys) or {} for settings in configurations(resources)] or [MANAGED]
    return [
        found
        for found in select_kind(resources, "Namespace")
        if any(
            selector and selector.items() <= (at(found.properties, "metadata", "labels") or {}).items()
            for selector in selectors
        )
    ]


def quantity(written: str | float) -> float:
    """Return a quantity of Kubernetes, such as `1.5k`, as a number."""
    text = str(written)
    number = text.rstrip("mkMG")
    return float(number) * _UNITS[text.removeprefix(number)]


@cache
def _shape(machine_type: str, topology: str | None) -> SliceShape:
    # Cached, because every rule on slices looks up all slices of a plan.
    alone = (each.topology for each in all_shapes() if each.machine_type == machine_type and not each.multi_host)
    return shape_of(machine_type, topology or next(alone, ""))


def _takes_chips(container: Any) -> bool:
    # Kubernetes treats a limit without a request as a request.
    return any(quantity(at(container, "resources", kind, TPU_RESOURCE) or 0) for kind in ("requests", "limits"))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _selects(term: Any, labels: Mapping[str, str]) -> bool:
    """Return whether a term of node affinity selects the labels. It knows In and Exists; other operators match."""
    return all(
        labels.get(at(one, "key")) in every(one, "values")
        if at(one, "operator") == "In"
        else at(one, "operator") != "Exists" or at(one, "key") in labels
        for one in every(term, "matchExpressions")
    )
