"""Rules of the section `prices`: whom it names, and that nothing is bought on demand at an unknown price."""

from collections.abc import Iterator

from infra.capacity import OnDemand
from infra.faults import Fault, nearest
from infra.pricing import group_rate
from infra.rules.draft import Draft, Shapes, listed
from infra.stack_file import Cloud


def check(draft: Draft, shapes: Shapes) -> Iterator[Fault]:
    """Faults of the section `prices`."""
    for name in draft.prices.usd_per_chip_hour:
        if draft.written_slices and name not in draft.written_slices:
            among = f"one of the slice groups {listed(draft.written_slices)}"
            yield Fault(
                "prices.usd_per_chip_hour",
                among,
                repr(name),
                "rename it or remove it",
                nearest(name, draft.written_slices),
            )
    if draft.cloud:
        yield from _on_demand(draft, draft.cloud, shapes)


def _on_demand(draft: Draft, cloud: Cloud, shapes: Shapes) -> Iterator[Fault]:
    for name in shapes:
        rate = group_rate(name, draft.slices[name], cloud, draft.prices)
        if isinstance(draft.slices[name].capacity, OnDemand) and rate.usd_per_chip_hour is None:
            yield Fault(
                f"prices.usd_per_chip_hour.{name}",
                f"USD that a chip hour costs you, since {rate.source}",
                "nothing",
                f"write prices.usd_per_chip_hour: {{{name}: USD}}, or another capacity",
            )
