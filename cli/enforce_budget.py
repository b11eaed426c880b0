"""`multislice enforce-budget` stops the queues of a stack whose `budget.usd_total` is used up.

Run it every hour. Each run counts the time for which jobs held chips since the run before, at the prices of the stack
file, and nothing else that Google bills. What was counted stays counted, also after a job and its records were deleted.
Jobs save before they free their chips. Once the stack file has a higher budget, it lets them continue.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from rich.console import Console

from cli import stack_file
from cli.answer import NEGATIVE, Form, Halt, as_json, write
from cli.deployed import Deployed
from cli.observed.cluster import read_cluster
from cli.observed.observe import require_answer
from cli.observed.snapshot import Queue, Snapshot
from infra.cluster.job_state import Workload
from infra.cluster.kubernetes import UNREACHABLE
from infra.cluster.queue_stop import Usage, keep_usage
from infra.review.table import Table
from infra.stack.cost import BILL_OUTPUT, dollars, group_rate, per_hour, read_bill
from infra.stack.kueue import flavor_name
from infra.stack.names import USED_ANNOTATION
from infra.stack.settings.stack import Settings


@dataclass(frozen=True)
class Used:
    """What a team has used."""

    team: str
    usd: float


@dataclass(frozen=True)
class Enforced:
    """What was found, and what was done."""

    stack: str
    usd_total: float | None
    """The limit in the stack file. None: there is none."""
    usd_used: float
    teams: tuple[Used, ...]
    stopped: tuple[str, ...]
    changed: tuple[str, ...]
    """Queues that this run stopped or released."""
    notes: tuple[str, ...]

    @property
    def used_up(self) -> bool:
        return self.usd_total is not None and self.usd_used >= self.usd_total


def enforce_budget(deployed: Deployed, form: Form, console: Console) -> int:
    """Count what the teams have used, and stop or release their queues. Return 0 if the budget is not used up, else 2.

    Raise Halt, and change nothing, if what they used cannot be read.
    """
    settings = stack_file.read(stack_file.find(deployed.stack))
    limit = settings.budget.usd_total if settings.budget else None
    snapshot = require_answer(read_cluster(deployed, time.time()))
    if snapshot.notes:
        unread = "; ".join(snapshot.notes)
        raise Halt(
            f"what the jobs used is not known, because not everything can be read: {unread}; nothing was changed"
        )
    usages = {queue.name: _count(settings, snapshot, queue) for queue in snapshot.queues}
    found = _enforce(deployed, snapshot, limit, usages)
    write(as_json({**asdict(found), "used_up": found.used_up}), [_table(found)], form, console)
    return NEGATIVE if found.used_up else 0


def _count(settings: Settings, snapshot: Snapshot, queue: Queue) -> Usage:
    try:
        before = Usage.read(queue.used)
    except (ValueError, TypeError, AttributeError) as error:
        raise Halt(
            f"the annotation {USED_ANNOTATION} of queue {queue.name} cannot be read: {error}; nothing was changed."
            f" To count again from zero, run: {snapshot.kubectl} annotate clusterqueue {queue.name} {USED_ANNOTATION}-"
        ) from None
    own = [each for each in snapshot.workloads if (each.admitted_by or each.queue) == queue.name]
    return before.counted(own, lambda workload: _usd_per_hour(settings, workload), snapshot.at)


def _usd_per_hour(settings: Settings, workload: Workload) -> float:
    """Return the price of the chips of a Workload: on the most expensive of its flavors, or of all groups if it has
    none that the stack file knows."""
    groups = settings.slices
    flavors = {flavor_name(name, group, settings.scheduling.placement): name for name, group in groups.items()}
    names = [flavors[flavor] for flavor in workload.flavors if flavor in flavors] or groups
    rates = [group_rate(name, groups[name], settings.cloud, settings.prices).usd_per_chip_hour for name in names]
    known = [rate for rate in rates if rate is not None]
    if not known:
        raise Halt(f"the price of job {workload.owner} is unknown; write prices.usd_per_chip_hour; nothing was changed")
    return max(known) * workload.chips


def _enforce(deployed: Deployed, snapshot: Snapshot, limit: float | None, usages: dict[str, Usage]) -> Enforced:
    used = sum(usage.usd for usage in usages.values())
    over = limit is not None and used >= limit
    stopped = {queue.name: queue.over_budget for queue in snapshot.queues}
    because = f"{dollars(used)} of {dollars(limit)} used on {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC"
    for name, usage in usages.items():
        try:
            keep_usage(deployed.api, name, usage, (stopped[name] or because) if over else "")
        except UNREACHABLE as error:
            raise Halt(f"the cluster did not change queue {name}: {error}; run this again") from None
    changed = tuple(name for name, before in stopped.items() if bool(before) != over)
    return Enforced(
        stack=deployed.stack,
        usd_total=limit,
        usd_used=used,
        teams=tuple(Used(name, usage.usd) for name, usage in usages.items()),
        stopped=tuple(stopped) if over else (),
        changed=changed,
        notes=tuple(_notes(deployed, limit, over=over, changed=changed)),
    )


def _notes(deployed: Deployed, limit: float | None, *, over: bool, changed: Sequence[str]) -> Iterator[str]:
    names = ", ".join(changed)
    if limit is None:
        yield "the stack file sets no limit: budget.usd_total"
    if not over:
        if changed:
            yield f"released: {names}; jobs continue from their last checkpoint when they are admitted"
        return
    yield f"stopped now: {names}; running jobs save and free their chips" if changed else "already stopped before"
    yield f"to let the jobs continue, raise budget.usd_total, then run: multislice enforce-budget {deployed.options}"
    bill = read_bill(deployed.outputs.get(BILL_OUTPUT))
    if bill and bill.at_once.usd_per_hour:
        yield f"slices are billed without jobs until the stack is destroyed: {per_hour(bill.at_once.usd_per_hour)}"


def _table(found: Enforced) -> Table:
    limit = "no limit" if found.usd_total is None else dollars(found.usd_total)
    return Table(
        title=f"Budget of {found.stack}",
        verdict=f"{'used up: ' if found.used_up else ''}{dollars(found.usd_used)} of {limit}",
        state="bad" if found.used_up else "good",
        columns=("team", "used"),
        rows=[(used.team, dollars(used.usd)) for used in found.teams],
        notes=[f"- {note}" for note in found.notes],
    )
