"""Slices that a stack declares, beside those that its cluster has nodes of."""

from collections.abc import Collection, Mapping
from typing import Any

from infra.cost import BILL_OUTPUT, read_bill
from infra.names import slice_pool


def without_hosts(outputs: Mapping[str, Any], pools: Collection[str]) -> dict[str, str] | None:
    """Topologies, by name, of the slices that shall always stand and are none of `pools`, which have nodes.

    A slice that comes on request has no host until a job asks for it, so it is never among them.
    None: the stack's outputs do not tell, since another version of the program wrote them.
    """
    bill = read_bill(outputs.get(BILL_OUTPUT))
    if bill is None:
        return None
    return {
        name: group.topology
        for group in bill.groups
        if group.billed == "standing"
        for name in (slice_pool(group.name, index) for index in range(group.slices))
        if name not in pools
    }
