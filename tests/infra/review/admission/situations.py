"""Queues and workloads for tests, in few words."""

from collections.abc import Mapping
from typing import Any

from infra.review.admission.situation import Admission, FlavorQuota, PodSet, Queue, Situation, Workload

LIMITLESS = {"borrowing_limit": None, "lending_limit": None}


def queue(name: str, chips: Mapping[str, int | FlavorQuota], **changes: Any) -> Queue:
    """A queue of the cohort `tpu` as the project renders it when a stack file says no more than chips."""
    quotas = (
        quota if isinstance(quota, FlavorQuota) else FlavorQuota(flavor=flavor, nominal=quota, **LIMITLESS)
        for flavor, quota in chips.items()
    )
    usual: dict[str, Any] = {
        "cohort": "tpu",
        "checked_flavors": frozenset[str](),
        "within_queue": "LowerPriority",
        "reclaim": "Any",
        "while_borrowing": "Never",
        "when_can_borrow": "MayStopSearch",
        "when_can_preempt": "TryNextFlavor",
        "weight": 1,
        "stop_policy": "None",
    }
    return Queue(name=name, flavors=tuple(quotas), **usual | changes)


def limited(flavor: str, nominal: int, *, borrow: int | None = None, lend: int | None = None) -> FlavorQuota:
    return FlavorQuota(flavor=flavor, nominal=nominal, borrowing_limit=borrow, lending_limit=lend)


def waiting(
    name: str, queue: str, *chips: int, priority: int = 500, at: float = 100, only: str | None = None
) -> Workload:
    """A workload of one pod set for each number of chips."""
    usable = frozenset([only]) if only else None
    pod_sets = tuple(PodSet(name=f"set{index}", chips=count, flavors=usable) for index, count in enumerate(chips))
    return Workload(
        name=name, uid=name, queue=queue, priority=priority, queued_at=at, pod_sets=pod_sets, admission=None
    )


def running(name: str, queue: str, flavor: str, chips: int, priority: int = 500, at: float = 50) -> Workload:
    """A workload that was created and admitted at one time."""
    admission = Admission(flavors=(flavor,), reserved_at=at, evicted=False)
    return waiting(name, queue, chips, priority=priority, at=at).model_copy(update={"admission": admission})


def situation(*parts: Queue | Workload, fair_sharing: bool = False) -> Situation:
    return Situation(
        queues=tuple(part for part in parts if isinstance(part, Queue)),
        workloads=tuple(part for part in parts if isinstance(part, Workload)),
        fair_sharing=fair_sharing,
    )
