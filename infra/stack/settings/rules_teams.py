"""Rules for teams and money: namespaces, members, quotas, prices and the budget."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import floor

from infra.stack.cost import dollars, group_bill, group_rate, job_group_bills, total
from infra.stack.names import JOBSET_NAMESPACE, KUEUE_NAMESPACE
from infra.stack.settings.errors import FieldError
from infra.stack.settings.jobs import HOURS_PER_YEAR, JobSettings
from infra.stack.settings.schema import Team
from infra.stack.settings.sections import WrongValueError, each
from infra.stack.settings.stack import Draft, Shapes, check_name, join_names
from infra.stack.settings.values import is_zone

_RESERVED_NAMES = {"default": "Kubernetes", KUEUE_NAMESPACE: "Kueue", JOBSET_NAMESPACE: "JobSet"}
_RESERVED = {"kube-": "Kubernetes", "gke-": "GKE", "gmp-": "Managed Prometheus"}
"""Owners of reserved namespaces, by name and by prefix."""
_DECIMALS = 4
"""Number of decimals of amounts and hours in comparisons, so that no rounding error exceeds a budget."""


def check(draft: Draft, shapes: Shapes) -> Iterator[FieldError]:
    """Yield the errors of the section `teams`."""
    yield from _namespaces(draft)
    yield from each(*(_groups(f"teams.{name}.quota", team, draft) for name, team in draft.teams.items()))
    yield from each(*(_sum(group, draft) for group in shapes))
    for name, team in draft.teams.items():
        yield from each(
            _members(f"teams.{name}", team, draft),
            _limits(f"teams.{name}", team, single=len(draft.written_teams) == 1),
            _sharing(f"teams.{name}", team, draft),
        )
    if not draft.teams.keys() < draft.written_teams.keys():
        # What a team lends is unknown if its section has an error.
        yield from check_reaches(draft, shapes)


def _namespaces(draft: Draft) -> Iterator[FieldError]:
    owners: dict[str, str] = {}
    for name, team in draft.teams.items():
        yield from each(_namespace(f"teams.{name}.namespace", team, owners))
        with suppress(WrongValueError):
            owners[team.namespace] = name


def _namespace(path: str, team: Team, owners: Mapping[str, str]) -> Iterator[FieldError]:
    """Yield the error of a namespace that is reserved, or that a team before has, by `owners`."""
    namespace = team.namespace
    owner = next((owner for prefix, owner in _RESERVED.items() if namespace.startswith(prefix)), None)
    if owner := _RESERVED_NAMES.get(namespace, owner):
        fix = f"choose another; this one is reserved by {owner}"
        yield FieldError(path, "a namespace of the team's own", repr(namespace), fix)
    elif namespace in owners:
        expected = "a namespace that no other team has"
        yield FieldError(path, expected, repr(namespace), f"choose another; team {owners[namespace]} has this one")


def _groups(path: str, team: Team, draft: Draft) -> Iterator[FieldError]:
    for group in team.quota:
        yield from check_name(path, "slice groups among", group, draft.written_slices, "rename it")


def _sum(group: str, draft: Draft) -> Iterator[FieldError]:
    given = sum(team.quota[group].chips for team in draft.teams.values() if group in team.quota)
    chips = draft.slices[group].chips
    if given > chips:
        expected = f"quotas of {group} that add up to at most its {chips} chips"
        fix = f"lower a team's quota or raise slices.{group}.count"
        yield FieldError("teams", expected, str(given), fix)


def _members(path: str, team: Team, draft: Draft) -> Iterator[FieldError]:
    own = draft.cluster if draft.cluster and not draft.cluster.existing else None
    if team.members.groups and own and own.security_group is None:
        yield FieldError(
            f"{path}.members.groups",
            "no groups, since the cluster does not ask Google who is in a group",
            ", ".join(team.members.groups),
            "set cluster.security_group to gke-security-groups@DOMAIN and make them its members, or name users",
        )


def _limits(path: str, team: Team, *, single: bool) -> Iterator[FieldError]:
    for group, share in team.quota.items():
        limits = {"borrowing_limit": share.borrowing_limit, "lending_limit": share.lending_limit}
        if single and (limited := [name for name, limit in limits.items() if limit is not None]):
            expected = "no limit, since there is no other team to borrow from or lend to"
            yield FieldError(f"{path}.quota.{group}", expected, " and ".join(limited), "remove it or add a team")
        if share.lending_limit is not None and share.lending_limit > share.chips:
            place, expected = f"{path}.quota.{group}.lending_limit", f"at most the team's own {share.chips} chips"
            yield FieldError(place, expected, str(share.lending_limit), "lower it or remove it to lend all")


def _sharing(path: str, team: Team, draft: Draft) -> Iterator[FieldError]:
    fair, preempts = draft.scheduling.fair_sharing, team.preemption.while_borrowing != "never"
    if team.weight is not None and not fair:
        expected, fix = "no weight without fair sharing", "write scheduling.fair_sharing: true or remove it"
        yield FieldError(f"{path}.weight", expected, str(team.weight), fix)
    if preempts and fair:
        yield FieldError(
            f"{path}.preemption.while_borrowing",
            "never, since fair sharing itself decides which jobs are preempted",
            team.preemption.while_borrowing,
            "remove it or scheduling.fair_sharing",
        )
    if preempts and team.preemption.reclaim == "never":
        yield FieldError(
            f"{path}.preemption.reclaim",
            "lower-priority or any, since in Kueue only a team that may reclaim its own chips can preempt others",
            "never",
            "change it or remove while_borrowing",
        )


def check_reaches(draft: Draft, shapes: Shapes) -> Iterator[FieldError]:
    """Yield an error for each job that its queue could never admit."""
    yield from each(*(_reaches(path, job, draft, shapes) for path, job in draft.readable_jobs))


def _reaches(path: str, job: JobSettings, draft: Draft, shapes: Shapes) -> Iterator[FieldError]:
    for group in job.slices.groups if job.team in draft.teams else ():
        if group in shapes:
            yield from _reach(path, job, draft.teams, group, job.slices.count * shapes[group].chips)


def _reach(path: str, job: JobSettings, teams: Mapping[str, Team], group: str, needed: int) -> Iterator[FieldError]:
    """Compare with the most that Kueue lets the team use of a group: its own chips, and those that other teams lend."""
    quota, expected = f"teams.{job.team}.quota.{group}", f"at least the {needed} chips of job {job.name}"
    own = teams[job.team].quota.get(group)
    if own is None:
        yield FieldError(quota, expected, "nothing", f"add it with {needed}")
        return
    others = [team.quota[group] for name, team in teams.items() if name != job.team and group in team.quota]
    idle = sum(one.chips if one.lending_limit is None else min(one.lending_limit, one.chips) for one in others)
    borrowable = idle if own.borrowing_limit is None else min(own.borrowing_limit, idle)
    if own.chips + borrowable < needed:
        got = f"{own.chips} of its own and {borrowable} that it may borrow" if others else str(own.chips)
        limits = ", or the limits," if others else ""
        fix = f"raise it to {needed - borrowable}{limits} or lower {path}.slices.count"
        yield FieldError(quota, expected, got, fix)


def check_money(draft: Draft, shapes: Shapes) -> Iterator[FieldError]:
    """Yield the errors of `prices` and `budget`. The budget's last day is checked in `infra.review.obstacles`,
    because it must not stop a destroy."""
    yield from each(
        _priced_groups(draft),
        *(_find_unpriced(name, draft) for name in shapes),
        _per_hour(draft, shapes),
        _total(draft, shapes),
    )


def _priced_groups(draft: Draft) -> Iterator[FieldError]:
    for name in draft.prices.usd_per_chip_hour:
        path, kind = "prices.usd_per_chip_hour", "one of the slice groups"
        yield from check_name(path, kind, name, draft.written_slices, "rename it or remove it")


def _find_unpriced(name: str, draft: Draft) -> Iterator[FieldError]:
    cloud, group = draft.cloud, draft.slices[name]
    # A price depends on the zone, which is reported if it is wrong.
    if cloud is None or not group.capacity.full_price or not is_zone(group.zone_in(cloud), cloud.region):
        return
    rate = group_rate(name, group, cloud, draft.prices)
    if rate.usd_per_chip_hour is None:
        yield FieldError(
            f"prices.usd_per_chip_hour.{name}",
            f"your price of a chip-hour in USD, since {rate.source}",
            "nothing",
            f"write prices.usd_per_chip_hour: {{{name}: USD}}, or another capacity",
        )


def _per_hour(draft: Draft, shapes: Shapes) -> Iterator[FieldError]:
    cloud, limit = draft.cloud, draft.budget.usd_per_hour if draft.budget else None
    if cloud is None or limit is None:
        return
    costs = {name: group_bill(name, draft.slices[name], cloud, draft.prices).usd_per_hour for name in shapes}
    amount = total(costs)
    yield from _unknown("usd_per_hour", amount.unknown)
    if amount.usd_per_hour > limit:
        parts = ", ".join(f"{name} {dollars(usd)}" for name, usd in costs.items() if usd is not None)
        expected = f"slices that cost at most {dollars(limit)} an hour when all of them exist"
        fix = "lower the count of a slice group or raise the budget"
        yield FieldError("budget.usd_per_hour", expected, f"{dollars(amount.usd_per_hour)} ({parts})", fix)


@dataclass(frozen=True)
class _Priced:
    path: str
    job: JobSettings
    usd_per_hour: float
    """US dollars per hour on the most expensive of its groups."""

    @property
    def usd(self) -> float:
        """Return the cost of all its hours; 0 if it has no limit."""
        return (self.job.max_hours or 0) * self.usd_per_hour

    def affordable_hours(self, usd: float) -> float:
        """Return a valid `max_hours` that costs no more than `usd`; 0 if there is none."""
        return max(0, min(floor(round(usd / self.usd_per_hour * 100, _DECIMALS)) / 100, HOURS_PER_YEAR))


def _total(draft: Draft, shapes: Shapes) -> Iterator[FieldError]:
    cloud, limit = draft.cloud, draft.budget.usd_total if draft.budget else None
    if cloud is None or limit is None:
        return
    priced: list[_Priced] = []
    unknown: dict[str, None] = {}
    for path, job in draft.readable_jobs:
        groups = {name: draft.slices[name] for name in job.slices.groups if name in shapes}
        bills = job_group_bills(job, groups, cloud, draft.prices, hours=None)
        unknown |= dict.fromkeys(group.group for group in bills if group.usd_per_hour is None)
        if known := [group.usd_per_hour for group in bills if group.usd_per_hour is not None]:
            priced.append(_Priced(path, job, max(known)))
    yield from _unknown("usd_total", list(unknown))
    for path, one in {one.path: one for one in priced}.items():
        # The runs of a sweep share one section, and so one max_hours.
        runs = sum(other.path == path for other in priced)
        left = limit - sum(other.usd for other in priced if other.path != path)
        yield from _endless(one, left / runs)
    if round(sum(one.usd for one in priced), _DECIMALS) > limit:
        yield _too_expensive(priced, limit)


def _endless(priced: _Priced, left: float) -> Iterator[FieldError]:
    """Yield the error of a job without `max_hours`. `left` is the rest of the budget after all other jobs."""
    if priced.job.max_hours is None:
        hours = priced.affordable_hours(left)
        yield FieldError(
            "budget.usd_total",
            "a job that is stopped before it costs more, since an estimate of its steps would not stop it",
            f"{'a job' if priced.path == 'job' else f'job {priced.job.name}'} without max_hours",
            f"write {priced.path}.max_hours: {hours:g}, which costs {dollars(hours * priced.usd_per_hour)} at"
            f" {dollars(priced.usd_per_hour)} an hour"
            if hours
            else "raise the budget",
        )


def _too_expensive(priced: list[_Priced], limit: float) -> FieldError:
    if len(priced) > 1:
        costs = ", ".join(f"{one.job.name} {dollars(one.usd)}" for one in priced)
        expected, got = f"jobs that cost at most {dollars(limit)} together", sum(one.usd for one in priced)
        fix = "lower max_hours of some of them or raise the budget"
        return FieldError("budget.usd_total", expected, f"{dollars(got)} ({costs})", fix)
    (only,) = priced
    job, hours, count = only.job, only.affordable_hours(limit), only.job.slices.count
    slices = f"{count} slice{'s' if count > 1 else ''} of {' or '.join(job.slices.groups)}"
    return FieldError(
        "budget.usd_total",
        f"a job that costs at most {dollars(limit)}",
        f"{dollars(only.usd)}, since it may hold {slices} for {job.max_hours:g} hours",
        f"lower {only.path}.max_hours to {hours:g} or raise the budget" if hours else "raise the budget",
    )


def _unknown(setting: str, groups: Sequence[str]) -> Iterator[FieldError]:
    if groups:
        fix = f"write your price of a chip-hour: {', '.join(f'prices.usd_per_chip_hour.{name}' for name in groups)}"
        yield FieldError(
            f"budget.{setting}", "a price of every slice group that it limits", f"none of {join_names(groups)}", fix
        )
