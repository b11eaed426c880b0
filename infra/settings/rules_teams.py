"""Rules of teams, quotas and money."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import floor

from infra import names
from infra.cost import group_bill, group_rate, job_group_bills, total
from infra.names import KUEUE_NAMESPACE
from infra.settings.errors import Fault, nearest
from infra.settings.jobs import HOURS_PER_YEAR, Job, JobSlices
from infra.settings.schema import Cloud, Quota, Team
from infra.settings.stack import Draft, Shapes, listed

_RESERVED_NAMESPACES = frozenset({"default", KUEUE_NAMESPACE, names.JOBSET_NAMESPACE})


def check_teams(draft: Draft, shapes: Shapes) -> Iterator[Fault]:
    """Faults of the section `teams`."""
    yield from _namespaces(draft)
    yield from _quotas(draft, shapes)
    for name, team in draft.teams.items():
        yield from _members(f"teams.{name}", team, draft)
        yield from _limits(f"teams.{name}", team, alone=len(draft.written_teams) == 1)
        yield from _sharing(f"teams.{name}", team, fair=draft.scheduling.fair_sharing)


def _namespaces(draft: Draft) -> Iterator[Fault]:
    owners: dict[str, str] = {}
    for name, team in draft.teams.items():
        path = f"teams.{name}.namespace"
        if team.namespace in _RESERVED_NAMESPACES or team.namespace.startswith(("kube-", "gke-", "gmp-")):
            yield Fault(
                path, "a namespace of the team's own", repr(team.namespace), "choose another; this one is taken"
            )
        elif team.namespace in owners:
            other = owners[team.namespace]
            yield Fault(path, "a namespace for this team alone", repr(team.namespace), f"team {other} has it already")
        owners[team.namespace] = name


def _quotas(draft: Draft, shapes: Shapes) -> Iterator[Fault]:
    given: defaultdict[str, int] = defaultdict(int)
    for name, team in draft.teams.items():
        for group, share in team.quota.items():
            given[group] += share.chips
            if draft.written_slices and group not in draft.written_slices:
                among = f"slice groups among {listed(draft.written_slices)}"
                yield Fault(
                    f"teams.{name}.quota", among, repr(group), "rename it", nearest(group, draft.written_slices)
                )
    for group in shapes:
        chips = draft.slices[group].chips
        if given[group] > chips:
            yield Fault(
                "teams",
                f"quotas of {group} that add up to at most its {chips} chips",
                str(given[group]),
                f"lower a team's quota or raise slices.{group}.count",
            )


def _members(path: str, team: Team, draft: Draft) -> Iterator[Fault]:
    if team.members.groups and draft.cluster and draft.cluster.security_group is None:
        yield Fault(
            f"{path}.members.groups",
            "no groups, since the cluster does not ask Google who is in a group",
            ", ".join(team.members.groups),
            "set cluster.security_group to gke-security-groups@DOMAIN and make them its members, or name users",
        )


def _limits(path: str, team: Team, *, alone: bool) -> Iterator[Fault]:
    for group, share in team.quota.items():
        limits = {"borrowing_limit": share.borrowing_limit, "lending_limit": share.lending_limit}
        if alone and (limited := [name for name, limit in limits.items() if limit is not None]):
            lonely = "no limit, since there is no other team to borrow from or lend to"
            yield Fault(f"{path}.quota.{group}", lonely, " and ".join(limited), "remove it or add a team")
        if share.lending_limit is not None and share.lending_limit > share.chips:
            yield Fault(
                f"{path}.quota.{group}.lending_limit",
                f"at most the team's own {share.chips} chips",
                str(share.lending_limit),
                "lower it or remove it to lend all",
            )


def _sharing(path: str, team: Team, *, fair: bool) -> Iterator[Fault]:
    pushes = team.preemption.while_borrowing != "never"
    if team.weight is not None and not fair:
        counts = "no weight, since weights count under fair sharing alone"
        yield Fault(f"{path}.weight", counts, str(team.weight), "write scheduling.fair_sharing: true or remove it")
    if pushes and fair:
        yield Fault(
            f"{path}.preemption.while_borrowing",
            "never, since fair sharing itself says who may push out whom",
            team.preemption.while_borrowing,
            "remove it or scheduling.fair_sharing",
        )
    if pushes and team.preemption.reclaim == "never":
        yield Fault(
            f"{path}.preemption.reclaim",
            "lower-priority or any, for Kueue lets no team push others out that may not reclaim its own chips",
            "never",
            "change it or remove while_borrowing",
        )


def check_admission(draft: Draft, shapes: Shapes) -> Iterator[Fault]:
    """Faults of the section `teams` that would leave a job in its queue for ever."""
    if draft.teams.keys() < draft.written_teams.keys():
        # What a team lends whose section has a fault of its own is not known yet.
        return
    for path, job in draft.readable_jobs:
        for group in job.slices.groups if job.team in draft.teams else ():
            if group in shapes:
                yield from _reach(path, job, draft.teams, group, job.slices.count * shapes[group].chips)


def _reach(path: str, job: Job, teams: Mapping[str, Team], group: str, needed: int) -> Iterator[Fault]:
    """The most that Kueue lets the team use of a group: its own chips, and those that others lend it."""
    quota = f"teams.{job.team}.quota.{group}"
    own = teams[job.team].quota.get(group)
    if own is None:
        yield Fault(quota, f"at least the {needed} chips of job {job.name}", "nothing", f"add it with {needed}")
        return
    others = [team.quota[group] for name, team in teams.items() if name != job.team and group in team.quota]
    idle = sum(map(_lendable, others))
    borrowable = idle if own.borrowing_limit is None else min(own.borrowing_limit, idle)
    if own.chips + borrowable < needed:
        got = f"{own.chips} of its own and {borrowable} that it may borrow" if others else str(own.chips)
        yield Fault(
            quota,
            f"at least the {needed} chips of job {job.name}",
            got,
            f"raise it to {needed - borrowable}{', or the limits,' if others else ''} or lower {path}.slices.count",
        )


def _lendable(share: Quota) -> int:
    return share.chips if share.lending_limit is None else min(share.lending_limit, share.chips)


def check_prices(draft: Draft, shapes: Shapes) -> Iterator[Fault]:
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
        if draft.slices[name].capacity.full_price and rate.usd_per_chip_hour is None:
            yield Fault(
                f"prices.usd_per_chip_hour.{name}",
                f"USD that a chip hour costs you, since {rate.source}",
                "nothing",
                f"write prices.usd_per_chip_hour: {{{name}: USD}}, or another capacity",
            )


_DECIMALS = 4
"""Of amounts and hours that are compared, so that no rounding error breaks a budget."""


def check_budget(draft: Draft, shapes: Shapes) -> Iterator[Fault]:
    """Faults of the section `budget` but its last day, which must not stop a destroy: `infra.readiness` judges that."""
    if draft.budget and draft.cloud:
        if draft.budget.usd_per_hour is not None:
            yield from _per_hour(draft, draft.cloud, draft.budget.usd_per_hour, shapes)
        if draft.budget.usd_total is not None:
            yield from _total(draft, draft.cloud, draft.budget.usd_total, shapes)


def _per_hour(draft: Draft, cloud: Cloud, limit: float, shapes: Shapes) -> Iterator[Fault]:
    costs = {name: group_bill(name, draft.slices[name], cloud, draft.prices).usd_per_hour for name in shapes}
    amount = total(costs)
    yield from _unknown("usd_per_hour", amount.unknown)
    if amount.usd_per_hour > limit:
        parts = ", ".join(f"{name} {usd:.2f}" for name, usd in costs.items() if usd is not None)
        yield Fault(
            "budget.usd_per_hour",
            f"slices that cost at most {limit:.2f} USD per hour when all are there",
            f"{amount.usd_per_hour:.2f} ({parts})",
            "lower the count of a slice group or raise the budget",
        )


@dataclass(frozen=True)
class _Priced:
    """A job and what it costs at worst."""

    path: str
    job: Job
    usd_per_hour: float
    """On the dearest of its groups."""

    @property
    def usd(self) -> float:
        """Over all its hours; nothing where it has no last one."""
        return (self.job.max_hours or 0) * self.usd_per_hour


def _total(draft: Draft, cloud: Cloud, limit: float, shapes: Shapes) -> Iterator[Fault]:
    priced: list[_Priced] = []
    unknown: dict[str, None] = {}
    for path, job in draft.readable_jobs:
        groups = {name: draft.slices[name] for name in job.slices.groups if name in shapes}
        bills = job_group_bills(job, groups, cloud, draft.prices, hours=None)
        unknown |= dict.fromkeys(group.group for group in bills if group.usd_per_hour is None)
        if known := [group.usd_per_hour for group in bills if group.usd_per_hour is not None]:
            priced.append(_Priced(path, job, max(known)))
    yield from _unknown("usd_total", list(unknown))
    for path, each in {each.path: each for each in priced}.items():
        # The runs of a sweep have one section, and so one max_hours.
        runs = sum(other.path == path for other in priced)
        left = limit - sum(other.usd for other in priced if other.path != path)
        yield from _endless(each, left / runs)
    if round(sum(each.usd for each in priced), _DECIMALS) > limit:
        yield _too_dear(priced, limit)


def _affordable_hours(priced: _Priced, usd: float) -> float:
    """More than a year is no legal `max_hours`, and neither is nothing."""
    return max(0, min(floor(round(usd / priced.usd_per_hour * 100, _DECIMALS)) / 100, HOURS_PER_YEAR))


def _endless(priced: _Priced, left: float) -> Iterator[Fault]:
    """The fault of a job without an end; `left` is what the others leave of the budget."""
    if priced.job.max_hours is None:
        affordable = _affordable_hours(priced, left)
        yield Fault(
            "budget.usd_total",
            "a job that is stopped before it costs more, since an estimate of its steps would not stop it",
            f"{'a job' if priced.path == 'job' else f'job {priced.job.name}'} without max_hours",
            f"write {priced.path}.max_hours: {affordable:g}, which {left:.2f} USD pay at {priced.usd_per_hour:.2f} USD"
            " per hour"
            if affordable
            else "raise the budget",
        )


def _too_dear(priced: list[_Priced], limit: float) -> Fault:
    if len(priced) > 1:
        costs = ", ".join(f"{each.job.name} {each.usd:.2f}" for each in priced)
        return Fault(
            "budget.usd_total",
            f"jobs that cost at most {limit:.2f} USD together",
            f"{sum(each.usd for each in priced):.2f} ({costs})",
            "lower max_hours of some of them or raise the budget",
        )
    (only,) = priced
    job, affordable = only.job, _affordable_hours(only, limit)
    return Fault(
        "budget.usd_total",
        f"a job that costs at most {limit:.2f} USD",
        f"{only.usd:.2f}, since it may hold {_chips(job.slices)} for {job.max_hours:g} hours",
        f"lower {only.path}.max_hours to {affordable:g} or raise the budget" if affordable else "raise the budget",
    )


def _chips(slices: JobSlices) -> str:
    return f"{slices.count} slice{'s' if slices.count > 1 else ''} of {' or '.join(slices.groups)}"


def _unknown(setting: str, groups: list[str] | tuple[str, ...]) -> Iterator[Fault]:
    if groups:
        yield Fault(
            f"budget.{setting}",
            "a price of every slice group that it limits",
            f"none of {listed(groups)}",
            f"write what a chip hour costs you: {', '.join(f'prices.usd_per_chip_hour.{name}' for name in groups)}",
        )
