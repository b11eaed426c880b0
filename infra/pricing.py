"""What a chip costs per hour, and who says so.

Owns the lookup in the table of list prices (`infra/prices.yaml`) and the precedence of contract
prices over it. A price is never guessed: one that stands nowhere is unknown, with the reason. Sums
over a stack are the business of `infra.bill`.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Literal

import yaml

from infra.settings.schema import Cloud, Prices, SliceGroup, Usd
from workloads.spec import Spec

ListedKind = Literal["on-demand", "spot"]

_BY_CONTRACT = "prices.usd_per_chip_hour of the stack file"
_NEVER_LISTED = {
    # Only with a commitment, at its discount: https://docs.cloud.google.com/tpu/docs/consumption-options.
    "reservation": "what a reservation costs is agreed with Google",
    "flex-start": "no list price of flex-start is known",
    "queued": "no list price of flex-start, by which queued chips come, is known",
}


class Rate(Spec):
    """The price of one chip."""

    usd_per_chip_hour: float | None = None
    """None: unknown, which is never the same as free."""
    source: str
    """Where the price stands, or why there is none."""
    date: str | None = None
    """Of the source, as far as it is known."""
    place: str | None = None
    """Zone or region that it is the price of; None for a contract's and an unknown one."""


class ListPrice(Spec):
    """One row of the table."""

    generation: str
    region: str
    zone: str | None = None
    """None: every zone of the region has it."""
    usd_per_chip_hour: Mapping[ListedKind, Usd]

    @property
    def place(self) -> str:
        """Where the price holds."""
        return self.zone or self.region


class Source(Spec):
    """Where the list prices are from."""

    name: str
    date: str


class PriceTable(Spec):
    """All list prices that are known."""

    source: Source
    prices: tuple[ListPrice, ...]


@cache
def price_table() -> PriceTable:
    """The table that ships with the program."""
    return PriceTable.model_validate(yaml.safe_load((files("infra") / "prices.yaml").read_text()))


def list_rate(generation: str, region: str, zone: str, kind: str) -> Rate:
    """The list price of a chip with capacity of `kind`, which holds in the zone or in its whole region."""
    if kind in _NEVER_LISTED:
        return Rate(source=_NEVER_LISTED[kind])
    listed = _listed(generation, kind)
    for rate in listed:
        if rate.place in (zone, region):
            return rate
    elsewhere = f"for {zone}, only for {', '.join(str(rate.place) for rate in listed)}" if listed else "anywhere"
    return Rate(source=f"no list price of {generation} {kind} is known {elsewhere}")


def cheapest_rate(generation: str, kind: ListedKind) -> Rate:
    """The lowest list price of a chip with capacity of `kind`, wherever that is."""
    listed = [(rate.usd_per_chip_hour, rate) for rate in _listed(generation, kind) if rate.usd_per_chip_hour]
    unknown = Rate(source=f"no list price of {generation} {kind} is known anywhere")
    return min(listed, key=lambda priced: priced[0], default=(None, unknown))[1]


def group_rate(name: str, group: SliceGroup, cloud: Cloud, prices: Prices) -> Rate:
    """What a chip of the slice group costs: by contract, else by the list."""
    contract = prices.usd_per_chip_hour.get(name)
    if contract is not None:
        return Rate(usd_per_chip_hour=contract, source=_BY_CONTRACT)
    return list_rate(group.generation, cloud.region, group.zone_in(cloud), group.capacity.kind)


def _listed(generation: str, kind: str) -> list[Rate]:
    table = price_table()
    return [
        Rate(usd_per_chip_hour=usd, source=table.source.name, date=table.source.date, place=row.place)
        for row in table.prices
        for listed, usd in row.usd_per_chip_hour.items()
        if (row.generation, listed) == (generation, kind)
    ]
