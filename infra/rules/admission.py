"""Rules of admission: can the job's queue ever admit it."""

from collections.abc import Iterator, Mapping

from infra.faults import Fault
from infra.rules.draft import Draft, Shapes
from infra.scheduling import Quota
from infra.stack_file import Job, Team


def check(draft: Draft, shapes: Shapes) -> Iterator[Fault]:
    """Faults of the section `teams` that would leave the job in its queue for ever."""
    if not draft.job or draft.job.team not in draft.teams or draft.teams.keys() < draft.written_teams.keys():
        # What a team lends whose section has a fault of its own is not known yet.
        return
    for group in draft.job.slices.groups:
        if group in shapes:
            yield from _reach(draft.job, draft.teams, group, draft.job.slices.count * shapes[group].chips)


def _reach(job: Job, teams: Mapping[str, Team], group: str, needed: int) -> Iterator[Fault]:
    """The most that Kueue lets the team use of a group: its own chips, and those that others lend it."""
    path = f"teams.{job.team}.quota.{group}"
    own = teams[job.team].quota.get(group)
    if own is None:
        yield Fault(path, f"at least the {needed} chips of job {job.name}", "nothing", f"add it with {needed}")
        return
    others = [team.quota[group] for name, team in teams.items() if name != job.team and group in team.quota]
    idle = sum(map(_lendable, others))
    borrowable = idle if own.borrowing_limit is None else min(own.borrowing_limit, idle)
    if own.chips + borrowable < needed:
        got = f"{own.chips} of its own and {borrowable} that it may borrow" if others else str(own.chips)
        yield Fault(
            path,
            f"at least the {needed} chips of job {job.name}",
            got,
            f"raise it to {needed - borrowable}{', or the limits,' if others else ''} or lower job.slices.count",
        )


def _lendable(share: Quota) -> int:
    return share.chips if share.lending_limit is None else min(share.lending_limit, share.chips)
