"""Costs of chips and plans: the price of a chip, slice groups, the stack, its jobs, and the difference to what is
deployed.

A price is never guessed. An unlisted price is `None`, with the reason, and an amount names the groups whose price is
unknown. Only chips and their prices count; `not_included` lists what Google bills in addition."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Literal

import yaml
from pydantic import ValidationError

from infra.stack.names import HOURS_PER_DAY, SECONDS_PER_HOUR
from infra.stack.settings.jobs import JobSettings, TrainingJob
from infra.stack.settings.schema import Cloud, Prices, SliceGroup, Usd
from infra.stack.settings.stack import FleetSpec, Settings
from infra.stack.submission import training_spec
from workloads.spec import Spec, load_preset

ListedKind = Literal["on-demand", "spot"]

BILL_OUTPUT = "bill"
"""Name of the stack output with the bill. The next preview compares against it."""
HOURS_PER_MONTH = 730
"""A twelfth of a year, as in Google's own price lists."""

_BY_CONTRACT = "prices.usd_per_chip_hour of the stack file"
_DECIMALS = 4
"""Decimals of every amount, as many as list prices per chip-hour have."""
_OF_ITS_OWNER = "the existing cluster, which its owner pays"
_NOT_IN_THE_BILL = (
    "the cluster's management fee and its system nodes",
    "disks of the nodes",
    "the checkpoint bucket, training data and images",
    "traffic between slices and zones, Cloud NAT, logs",
)
_NOT_IN_THE_JOB = ("start-up, compilation, evaluation and saves", "work that is lost and repeated after a restart")


class Rate(Spec):
    """The price of one chip."""

    usd_per_chip_hour: float | None = None
    """US dollars per chip-hour. `None` if unknown, which never means free."""
    source: str
    """Where the price is from, or why no price is known."""
    date: str | None = None
    """Date of the source, as precise as known."""
    place: str | None = None
    """Zone or region of the price. `None` for a contract price and for an unknown price."""


class ListPrice(Spec):
    """One row of the table of list prices."""

    generation: str
    region: str
    zone: str | None = None
    """`None` if every zone of the region has this price."""
    usd_per_chip_hour: Mapping[ListedKind, Usd]

    @property
    def place(self) -> str:
        return self.zone or self.region


class Source(Spec):
    """Source of the list prices."""

    name: str
    date: str


class PriceTable(Spec):
    """All known list prices."""

    source: Source
    prices: tuple[ListPrice, ...]


@cache
def price_table() -> PriceTable:
    """Return the program's table of list prices, `infra/stack/prices.yaml`."""
    return PriceTable.model_validate(yaml.safe_load((files(__package__) / "prices.yaml").read_text()))


def list_rate(generation: str, region: str, zone: str, kind: str) -> Rate:
    """Return the list price of a chip with capacity of `kind`, in the zone or in the whole region."""
    listed = _listed_rates(generation, kind)
    for rate in listed:
        if rate.place in (zone, region):
            return rate
    elsewhere = f"for {zone}, only for {', '.join(str(rate.place) for rate in listed)}" if listed else "anywhere"
    return Rate(source=f"no list price of {generation} {kind} is known {elsewhere}")


def group_rate(name: str, group: SliceGroup, cloud: Cloud, prices: Prices) -> Rate:
    """Return the price of a chip of the slice group: the contract price if there is one, else the list price."""
    contract = prices.usd_per_chip_hour.get(name)
    if contract is not None:
        return Rate(usd_per_chip_hour=contract, source=_BY_CONTRACT)
    if group.capacity.no_list_price:
        return Rate(source=group.capacity.no_list_price)
    return list_rate(group.generation, cloud.region, group.zone_in(cloud), group.capacity.kind)


def _listed_rates(generation: str, kind: str) -> list[Rate]:
    table = price_table()
    return [
        Rate(usd_per_chip_hour=usd, source=table.source.name, date=table.source.date, place=row.place)
        for row in table.prices
        for listed, usd in row.usd_per_chip_hour.items()
        if (row.generation, listed) == (generation, kind)
    ]


class Amount(Spec):
    """Money per time for several slice groups. In a difference, the increase over the previous amount."""

    usd_per_hour: float
    """US dollars per hour for the groups with a known price."""
    usd_per_month: float
    """US dollars per month of 730 hours."""
    unknown: tuple[str, ...]
    """Groups whose cost at an unknown price has to be added."""


class GroupBill(Spec):
    """Cost of one slice group."""

    name: str
    generation: str
    topology: str
    slices: int
    chips: int
    capacity: str
    billed: Literal["standing", "on-request"]
    """`standing`: billed from `up` to `destroy`, whether a job runs or not. Spot is billed only while Google provides
    it; a reservation is billed by its contract, possibly for longer. `on-request`: billed while chips that a job
    requested exist."""
    rate: Rate
    usd_per_hour: float | None = None
    """US dollars per hour with all slices of the group."""
    usd_per_month: float | None = None


class JobGroupBill(Spec):
    """Cost of a job on one of the slice groups that it may run on."""

    group: str
    capacity: str
    usd_per_hour: float | None = None
    usd: float | None = None
    """Estimated US dollars for all steps."""
    usd_at_most: float | None = None
    """US dollars for `job.max_hours`, after which the job is stopped."""


class JobBill(Spec):
    """Cost of one of the stack's jobs. Its chips are part of the groups' amounts, so it adds nothing to them."""

    name: str
    chips: int
    steps: int | None = None
    """Number of training steps. `None` if the job is not a training job, whose duration is unknown."""
    step_seconds: float | None = None
    """Estimated seconds per step."""
    hours: float | None = None
    max_hours: float | None = None
    groups: tuple[JobGroupBill, ...]
    """Cost on each slice group, the preferred group first."""
    not_included: tuple[str, ...]


class SweepBill(Spec):
    """Cost of all runs of a sweep together, each on its preferred group."""

    name: str
    team: str
    runs: int
    usd_per_hour: float | None = None
    """US dollars per hour if all runs run at the same time."""
    usd: float | None = None
    """Estimated US dollars for all steps of all runs."""
    usd_at_most: float | None = None
    """US dollars if each run is stopped by `max_hours`."""


class GroupChange(Spec):
    """A slice group whose cost changes."""

    name: str
    chips_before: int
    chips: int
    usd_per_hour: float | None = None
    """Increase in US dollars per hour. `None` if one of the prices is unknown."""


class Delta(Spec):
    """Difference to the bill of the deployed stack."""

    at_once: Amount
    at_most: Amount
    groups: tuple[GroupChange, ...]


class Bill(Spec):
    """Cost of a plan."""

    groups: tuple[GroupBill, ...]
    at_once: Amount
    """Cost as soon as the stack is up, before a job runs."""
    at_most: Amount
    """Cost when all capacity that may be requested exists."""
    by_capacity: Mapping[str, Amount]
    """`at_most` by kind of capacity."""
    jobs: tuple[JobBill, ...]
    sweeps: tuple[SweepBill, ...] = ()
    """Bills of sweeps. Their runs are also among `jobs`."""
    not_included: tuple[str, ...]
    delta: Delta | None = None
    """Difference to the deployed stack. `None` if nothing is deployed or its bill is unknown."""


def bill(settings: Settings, step_seconds: Mapping[str, float], deployed: Bill | None) -> Bill:
    """Return the bill of a plan; `step_seconds` maps jobs to the estimated seconds of a step, where known."""
    cloud, prices = settings.cloud, settings.prices
    groups = [group_bill(name, group, cloud, prices) for name, group in settings.slices.items()]
    jobs = tuple(
        _job_bill(job, settings.groups_of(job), cloud, prices, step_seconds.get(name))
        for name, job in settings.jobs.items()
    )
    of_jobs = {"jobs": jobs, "sweeps": tuple(_sweep_bills(settings, {job.name: job for job in jobs}))}
    delta = _delta(deployed.groups, groups) if deployed else None
    existing = settings.cluster.existing is not None
    return stack_bill(groups, existing=existing).model_copy(update=of_jobs | {"delta": delta})


def stack_bill(groups: Sequence[GroupBill], *, existing: bool) -> Bill:
    """Return the bill of slice groups, without jobs. `existing`: the cluster belongs to somebody else."""
    kinds = dict.fromkeys(group.capacity for group in groups)
    return Bill(
        groups=tuple(groups),
        at_once=total({group.name: _at_once(group) for group in groups}),
        at_most=total({group.name: group.usd_per_hour for group in groups}),
        by_capacity={kind: total({g.name: g.usd_per_hour for g in groups if g.capacity == kind}) for kind in kinds},
        jobs=(),
        not_included=(_OF_ITS_OWNER, *_NOT_IN_THE_BILL[1:]) if existing else _NOT_IN_THE_BILL,
    )


def read_bill(exported: object) -> Bill | None:
    """Return the bill in a stack's outputs. `None` if there is no bill, or another version of the program wrote
    it."""
    try:
        return Bill.model_validate(exported)
    except ValidationError:
        return None


def group_bill(name: str, group: SliceGroup, cloud: Cloud, prices: Prices) -> GroupBill:
    """Return the bill of one slice group."""
    rate = group_rate(name, group, cloud, prices)
    usd_per_hour = _times(rate.usd_per_chip_hour, group.chips)
    return GroupBill(
        name=name,
        generation=group.generation,
        topology=group.topology,
        slices=group.count,
        chips=group.chips,
        capacity=group.capacity.kind,
        billed=group.capacity.billed,
        rate=rate,
        usd_per_hour=usd_per_hour,
        usd_per_month=_times(usd_per_hour, HOURS_PER_MONTH),
    )


def job_group_bills(
    job: JobSettings, groups: Mapping[str, SliceGroup], cloud: Cloud, prices: Prices, hours: float | None
) -> tuple[JobGroupBill, ...]:
    """Return the bills of a job that takes `hours` on each of `groups`."""
    bills: list[JobGroupBill] = []
    for name, group in groups.items():
        rate = group_rate(name, group, cloud, prices)
        usd_per_hour = _times(rate.usd_per_chip_hour, job.slices.count * group.shape.chips)
        bills.append(
            JobGroupBill(
                group=name,
                capacity=group.capacity.kind,
                usd_per_hour=usd_per_hour,
                usd=_times(usd_per_hour, hours),
                usd_at_most=_times(usd_per_hour, job.max_hours),
            )
        )
    return tuple(bills)


def total(amounts: Mapping[str, float | None]) -> Amount:
    """Return the sum of amounts per hour, by slice group."""
    usd_per_hour = _usd(sum(usd for usd in amounts.values() if usd is not None))
    unknown = tuple(name for name, usd in amounts.items() if usd is None)
    return Amount(usd_per_hour=usd_per_hour, usd_per_month=_usd(usd_per_hour * HOURS_PER_MONTH), unknown=unknown)


def _job_bill(
    job: JobSettings, groups: Mapping[str, SliceGroup], cloud: Cloud, prices: Prices, step_seconds: float | None
) -> JobBill:
    steps = training_spec(job, load_preset(job.preset)).steps if isinstance(job, TrainingJob) else None
    hours = None if steps is None or step_seconds is None else steps * step_seconds / SECONDS_PER_HOUR
    return JobBill(
        name=job.name,
        chips=job.slices.count * groups[job.slices.group].shape.chips,
        steps=steps,
        step_seconds=step_seconds,
        hours=hours,
        max_hours=job.max_hours,
        groups=job_group_bills(job, groups, cloud, prices, hours),
        not_included=() if steps is None else _NOT_IN_THE_JOB,
    )


def _sweep_bills(settings: Settings, bills: Mapping[str, JobBill]) -> Iterator[SweepBill]:
    by_sweep: dict[str, list[JobSettings]] = {}
    for job in settings.jobs.values():
        if job.sweep_name:
            by_sweep.setdefault(job.sweep_name, []).append(job)
    for name, runs in by_sweep.items():
        best = [bills[run.name].groups[0] for run in runs]
        yield SweepBill(
            name=name,
            team=runs[0].team,
            runs=len(runs),
            usd_per_hour=_sum(group.usd_per_hour for group in best),
            usd=_sum(group.usd for group in best),
            usd_at_most=_sum(group.usd_at_most for group in best),
        )


def _sum(amounts: Iterable[float | None]) -> float | None:
    known = list(amounts)
    return None if None in known else _usd(sum(usd for usd in known if usd is not None))


def _delta(before: Iterable[GroupBill], after: Iterable[GroupBill]) -> Delta:
    old, new = ({group.name: group for group in groups} for groups in (before, after))
    pairs = {name: (old.get(name), new.get(name)) for name in dict.fromkeys([*old, *new])}
    more = {name: _more(lambda group: group.usd_per_hour, *pair) for name, pair in pairs.items()}
    return Delta(
        at_once=total({name: _more(_at_once, *pair) for name, pair in pairs.items()}),
        at_most=total(more),
        groups=tuple(
            GroupChange(
                name=name, chips_before=was.chips if was else 0, chips=now.chips if now else 0, usd_per_hour=more[name]
            )
            for name, (was, now) in pairs.items()
            if _basis(was) != _basis(now)
        ),
    )


def _basis(group: GroupBill | None) -> object:
    """Return everything that the amounts of a group depend on. If the price is unknown, include what is bought."""
    if group is None:
        return None
    usd = group.rate.usd_per_chip_hour
    return group.chips, group.billed, (group.generation, group.capacity) if usd is None else usd


def _more(cost: Callable[[GroupBill], float | None], before: GroupBill | None, after: GroupBill | None) -> float | None:
    if _basis(before) == _basis(after):
        return 0
    was, now = (cost(group) if group else 0 for group in (before, after))
    return None if was is None or now is None else _usd(now - was)


def _at_once(group: GroupBill) -> float | None:
    return group.usd_per_hour if group.billed == "standing" else 0


def _times(usd: float | None, factor: float | None) -> float | None:
    return None if usd is None or factor is None else _usd(usd * factor)


def _usd(amount: float) -> float:
    return round(amount, _DECIMALS)


def usd_per_job_hour(fleet: FleetSpec, job: JobSettings) -> float | None:
    """Return what all slices of a job cost per hour.

    `None` if the price of a group that it may run on is unknown or if prices differ, because pods do not know which
    group Kueue chose."""
    bills = job_group_bills(job, fleet.groups_of(job), fleet.cloud, fleet.prices, hours=None)
    prices = {bill.usd_per_hour for bill in bills}
    return prices.pop() if len(prices) == 1 else None


def dollars(amount: float | None) -> str:
    """Return an amount such as `$12.30`, or `-` if the price is unknown."""
    return "-" if amount is None else f"${amount:,.2f}"


def signed(amount: float) -> str:
    """Return an increase such as `+$12.30`, or a decrease such as `-$12.30`."""
    return f"{'-' if amount < 0 else '+'}{dollars(abs(amount))}"


def per_hour(usd_per_hour: float) -> str:
    """Return a price such as `$2.50 an hour ($60.00 a day)`."""
    return f"{dollars(usd_per_hour)} an hour ({dollars(usd_per_hour * HOURS_PER_DAY)} a day)"


def hours(count: float) -> str:
    """Return a number of hours such as `1 hour` or `1.5 hours`."""
    return f"{count:g} hour{'' if count == 1 else 's'}"


def signed_per_hour(usd_per_hour: float) -> str:
    """Return a change of a price such as `+$2.50 an hour (+$60.00 a day)`."""
    return f"{signed(usd_per_hour)} an hour ({signed(usd_per_hour * HOURS_PER_DAY)} a day)"
