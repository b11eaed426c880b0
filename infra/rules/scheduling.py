"""Rules of the section `scheduling` and the slices that are scheduled."""

from collections.abc import Iterator

from infra.capacity import FlexStart, Queued
from infra.faults import Fault
from infra.rules.draft import Draft, listed


def check(draft: Draft) -> Iterator[Fault]:
    """Faults of the section `scheduling`."""
    placement = draft.scheduling.placement
    on_request = [name for name, group in draft.slices.items() if isinstance(group.capacity, FlexStart | Queued)]
    if placement == "topology-aware" and on_request:
        yield Fault(
            "scheduling.placement",
            f"exclusive-topology, since nodes of {listed(on_request)} come on request and Kueue counts what exists",
            placement,
            f"write exclusive-topology, or another capacity for {listed(on_request)}",
        )
