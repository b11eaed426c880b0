"""What a stack file says of money: prices by contract, and what may be spent.

Owns the two sections. List prices lie in `infra.pricing`; whether a plan keeps to its budget is
judged by `infra.rules.budget` and `infra.expiry`.
"""

from collections.abc import Mapping
from datetime import date
from typing import Annotated

from pydantic import BeforeValidator, Field

from workloads.spec import Number, Spec

_AS_PULUMI_WRITES_MIDNIGHT = " 00:00:00 +0000 UTC"
"""What Pulumi puts behind a date that stands in the stack file without quotation marks."""


def _as_date(written: object) -> object:
    return written.removesuffix(_AS_PULUMI_WRITES_MIDNIGHT) if isinstance(written, str) else written


Usd = Annotated[Number, Field(gt=0, allow_inf_nan=False)]


class Prices(Spec):
    """What chips cost by contract. List prices stand in `infra/prices.yaml`, each with its source."""

    usd_per_chip_hour: Mapping[str, Usd] = {}
    """By slice group, ahead of the list price. An on-demand group needs one where no list price is
    known; any other group of which none is known has none in the bill."""


class Budget(Spec):
    """What the stack may cost; a plan that breaks it is refused. Chips alone count."""

    usd_per_hour: Usd | None = None
    """Most per hour when all capacity is there that the stack may ask for. The price of every slice
    group must be known."""
    usd_total: Usd | None = None
    """Most that all jobs together may cost while they hold chips. Needs `max_hours` of each: an estimate of
    steps would stop none. A changed job begins to count anew, and slices that stand idle are not in it."""
    expires_on: Annotated[date, BeforeValidator(_as_date)] | None = None
    """Last day on which the stack may be changed, in UTC. Afterwards previews and updates are refused, and
    `destroy` is not."""
