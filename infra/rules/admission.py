"""Rules of admission: can a job's queue ever admit it."""

from collections.abc import Iterator, Mapping

from infra.faults import Fault
from infra.jobs import Job
from infra.rules.draft import Draft, Shapes
from infra.scheduling import Quota
from infra.stack_file import Team


def check(draft: Draft, shapes: Shapes) -> Iterator[Fault]:
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
