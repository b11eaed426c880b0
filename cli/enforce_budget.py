"""`multislice enforce-budget` stops the queues of a stack whose `budget.usd_total` is used up.

It can run at any time and as often as you like: it changes nothing if the queues are as they should be. Jobs save
before they free their chips. Once the stack file has a higher budget, it lets them continue. It counts the time for
which jobs hold chips, at the price of these chips, and nothing else that Google bills.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console

from cli import stack_file
from cli.answer import NEGATIVE, Form, Halt, as_json, write
from cli.deployed import Deployed
from cli.observed.cluster import read_cluster
from cli.observed.files import read_runs
from cli.observed.observe import folder_of, require_answer
from cli.observed.snapshot import Job, Snapshot
from infra.brake import release_queue, stop_queue
from infra.cost import BILL_OUTPUT, group_rate, read_bill
from infra.kubernetes import UNREACHABLE
from infra.money import dollars, per_hour
from infra.review.table import Table
from infra.settings.stack import Settings
from workloads.report.command import faults_of_storage
from workloads.report.history import History, Start

_SECONDS_PER_HOUR = 3600


@dataclass(frozen=True)
class Used:
    """What a job has used in all its runs."""

    job: str
    namespace: str
    usd: float
    runs: int
    """Number of its runs. 0: it keeps no records, so only its current submission counts."""


@dataclass(frozen=True)
class Enforced:
    """What was found, and what was done."""

    stack: str
    usd_total: float | None
    """The limit in the stack file. None: there is none."""
    usd_used: float
    jobs: tuple[Used, ...]
    stopped: tuple[str, ...]
    """Queues that are stopped."""
    changed: tuple[str, ...]
    """Queues that this run stopped or released."""
    notes: tuple[str, ...]

    @property
    def used_up(self) -> bool:
        return self.usd_total is not None and self.usd_used >= self.usd_total


def enforce_budget(deployed: Deployed, form: Form, console: Console) -> int:
    """Stop or release the queues of the stack. Return 0 if its budget is not used up, else 2.

    Raise Halt, and change nothing, if what it used cannot be read.
    """
    settings = stack_file.read(stack_file.find(deployed.stack))
    limit = settings.budget.usd_total if settings.budget else None
    snapshot = require_answer(read_cluster(deployed, time.time()))
    if snapshot.notes:
        unread = "; ".join(snapshot.notes)
        raise Halt(
            f"what the jobs used is not known, because not everything can be read: {unread}; nothing was changed"
        )
    jobs = tuple(_used(deployed, settings, snapshot))
    found = _enforce(deployed, snapshot, limit, jobs)
    write(as_json({**vars(found), "used_up": found.used_up}), [_table(found)], form, console)
    return NEGATIVE if found.used_up else 0


def _used(deployed: Deployed, settings: Settings, snapshot: Snapshot) -> Iterator[Used]:
    """Yield what each job of the stack's teams has used, including those that were deleted."""
    gone = [Job(place) for place in deployed.jobs if place not in {job.place for job in snapshot.jobs}]
    for job in (*snapshot.jobs, *gone):
        folder = folder_of(deployed, job)
        runs = _runs(folder) if folder else []
        usd_per_hour = _usd_per_hour(settings, job)
        hours = job.workload.held_seconds(snapshot.at) / _SECONDS_PER_HOUR if job.workload else 0.0
        recorded = sum(_usd(start, usd_per_hour) for run in runs for start in run.attempts)
        # Records lack the time in which hosts start, and a job that hangs writes none.
        yield Used(job.place.name, job.place.namespace, max(recorded, hours * usd_per_hour), len(runs))


def _runs(folder: str) -> list[History]:
    """Return all runs. Raise Halt if they cannot be read."""
    try:
        return list(read_runs(folder))
    except (*faults_of_storage(), ImportError) as error:
        raise Halt(
            f"{folder}: expected readable records, got {type(error).__name__}: {error}; nothing was changed. Check the"
            " network and, for gs://, `gcloud auth application-default login`"
        ) from None


def _usd(start: Start, usd_per_hour: float) -> float:
    price = usd_per_hour if start.usd_per_hour is None else start.usd_per_hour
    return price * max(0.0, start.ended - start.began[0]) / _SECONDS_PER_HOUR


def _usd_per_hour(settings: Settings, job: Job) -> float:
    """Return the price of the chips of a job, on the most expensive of the groups that it may use."""
    own = settings.jobs.get(job.place.name) if job.declared or not job.uid else None
    groups = settings.groups_of(own) if own else settings.slices
    rates = [group_rate(name, group, settings.cloud, settings.prices) for name, group in groups.items()]
    most = max((rate.usd_per_chip_hour for rate in rates if rate.usd_per_chip_hour is not None), default=None)
    if most is None:
        raise Halt(f"the price of job {job.place.name} is unknown; write prices.usd_per_chip_hour; nothing was changed")
    if own:
        return most * own.slices.count * groups[own.slices.group].shape.chips
    return most * (job.workload.chips if job.workload else 0)


def _enforce(deployed: Deployed, snapshot: Snapshot, limit: float | None, jobs: tuple[Used, ...]) -> Enforced:
    used = sum(job.usd for job in jobs)
    over = limit is not None and used >= limit
    stopped = {queue.name: queue.over_budget for queue in snapshot.queues}
    changed = tuple(name for name, because in stopped.items() if bool(because) != over)
    because = f"{dollars(used)} of {dollars(limit)} used on {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC"
    for name in changed:
        try:
            stop_queue(deployed.api, name, because) if over else release_queue(deployed.api, name)
        except UNREACHABLE as error:
            raise Halt(f"the cluster did not change queue {name}: {error}; run this again") from None
    return Enforced(
        stack=deployed.stack,
        usd_total=limit,
        usd_used=used,
        jobs=jobs,
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
        columns=("job", "namespace", "runs", "used"),
        rows=[(job.job, job.namespace, str(job.runs), dollars(job.usd)) for job in found.jobs],
        notes=[f"- {note}" for note in found.notes],
    )
