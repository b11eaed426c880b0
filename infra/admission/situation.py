"""What Kueue decides on: queues, and the workloads that run or wait in them.

Owns plain data, in Kueue's words (https://kueue.sigs.k8s.io/docs/concepts/cluster_queue). Reading
them from manifests is the business of `infra.admission.manifests`.
"""

from collections import Counter
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from workloads.spec.base import Spec

type Chips = dict[str, int]
"""By flavor."""
Policy = Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority", "Any"]
Search = Literal["MayStopSearch", "TryNextFlavor"]


class FlavorQuota(Spec):
    """Chips of one flavor that a queue has."""

    flavor: str
    nominal: int
    borrowing_limit: int | None
    """None: all that is idle."""
    lending_limit: int | None
    """None: all of its own."""


class Queue(Spec):
    """A ClusterQueue."""

    name: str
    cohort: str | None
    flavors: tuple[FlavorQuota, ...]
    """In the order in which they are tried."""
    checked_flavors: frozenset[str]
    """A workload that has its quota of these still waits for an admission check."""
    within_queue: Policy
    reclaim: Policy
    while_borrowing: Literal["Never", "LowerPriority"]
    when_can_borrow: Search
    when_can_preempt: Search
    weight: float
    """Under fair sharing."""
    stop_policy: Literal["None", "Hold", "HoldAndDrain"]

    @property
    def stopped(self) -> bool:
        """Whether it admits nothing."""
        return self.stop_policy != "None"


class PodSet(Spec):
    """Equal pods of a workload, which get one flavor."""

    name: str
    chips: int
    flavors: frozenset[str] | None
    """Whose nodes they may use. None: any."""


class Admission(Spec):
    """A workload's quota."""

    flavors: tuple[str, ...]
    """One for each of its pod sets; empty for pods that ask for no chips."""
    reserved_at: float
    evicted: bool
    """It is being stopped and gives its quota back when its pods are gone."""


class Workload(Spec):
    """What a job asks for."""

    name: str
    """With its namespace; no two are equal."""
    uid: str
    """Decides between equals."""
    queue: str
    priority: int
    queued_at: Annotated[float, Field(allow_inf_nan=True)]
    """When it was created, or put back since its pods did not come up; infinite for a job that is yet to come.
    Seconds, as all times here."""
    pod_sets: tuple[PodSet, ...]
    admission: Admission | None
    """None: it waits."""

    @property
    def chips(self) -> int:
        """Of all its pods."""
        return sum(pods.chips for pods in self.pod_sets)

    @cached_property
    def usage(self) -> Chips:
        """Chips that it has quota of."""
        return chips_of(self.pod_sets, self.admission.flavors) if self.admission else {}


class Situation(Spec):
    """A cluster's queues at one moment."""

    queues: tuple[Queue, ...]
    workloads: tuple[Workload, ...]
    fair_sharing: bool


def chips_of(pod_sets: tuple[PodSet, ...], flavors: tuple[str, ...]) -> Chips:
    """Chips of the pod sets by flavor, where each has the flavor that stands at its place."""
    total = Counter[str]()
    for pods, flavor in zip(pod_sets, flavors, strict=True):
        if flavor:
            total[flavor] += pods.chips
    return dict(total)
