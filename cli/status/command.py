"""`multislice status` and `multislice list`.

Owns when is looked and how the answer is written; what it looks like is in `render`.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from rich.console import Console
from rich.live import Live

from cli.deployed import Deployed
from cli.halt import Halt
from cli.observed.json import as_json
from cli.observed.observe import Observer, job_of, named
from cli.observed.snapshot import Job, Snapshot, State
from cli.observed.summary import summaries, summary
from cli.status.render import line, notes, screen, table

WATCH_SECONDS = 2.0
"""Between two looks."""
FAILED = 2
"""Exit status of a watch whose job failed, or is gone."""
_GONE_LOOKS = 30
"""Without a sight of the job until it counts as cancelled: `up` may put another in its place."""


def status(deployed: Deployed, name: str | None, console: Console, *, json: bool) -> int:
    """Print the stack and its job of that name; None: all that it has.

    Raises:
        Halt: there is no such job, or the cluster does not answer.
    """
    wanted = [name] if name else [place.full_name for place in deployed.jobs]
    snapshot = answered(Observer(deployed).look(*(each for full in wanted for each in named(deployed, full))))
    found = tuple(job_of(deployed, snapshot, each) for each in wanted)
    if json:
        console.out(_object(snapshot, found))
    else:
        console.print(screen(snapshot, found, console.width))
    return 0


def jobs(deployed: Deployed, console: Console, *, json: bool) -> int:
    """Print all jobs in the namespaces of the stack's teams.

    Raises:
        Halt: the cluster does not answer.
    """
    snapshot = answered(Observer(deployed).look())
    found = summaries(snapshot)
    if json:
        console.out(as_json({"jobs": found, "notes": snapshot.notes}))
        return 0
    console.print(table(found) if found else "no job")
    for note in notes(snapshot):
        console.print(note)
    return 0


def answered(snapshot: Snapshot) -> Snapshot:
    """The snapshot.

    Raises:
        Halt: the cluster does not answer.
    """
    if snapshot.answered:
        return snapshot
    raise Halt(
        "expected the cluster to answer, got:\n" + "\n".join(f"  {note}" for note in snapshot.notes) + "\n"
        f"Look what is in the way: multislice doctor {snapshot.options}"
    )


@dataclass
class Watch:
    """Follows one job until it has ended."""

    deployed: Deployed
    name: str | None
    console: Console
    json: bool = False
    """For a program: one object a line, whenever more than the time has changed."""
    wait: Callable[[float], None] = time.sleep
    _told: str = ""
    _missed: int = 0

    def run(self) -> int:
        """Exit status 0: the job is complete; 2: it failed, or was cancelled.

        Raises:
            Halt: there is no such job, or the cluster does not answer at first.
        """
        observer, names = Observer(self.deployed), named(self.deployed, self.name)
        snapshot = answered(observer.look(*names))
        job = job_of(self.deployed, snapshot, self.name)
        live = Live(console=self.console, auto_refresh=False)
        with live if self._draws else nullcontext():
            while True:
                self._show(live, snapshot, job)
                if self._has_ended(job):
                    return 0 if job.state is State.COMPLETED else FAILED
                self.wait(WATCH_SECONDS)
                seen = observer.look(*names)
                # What a look cannot reach is told below what was seen last.
                snapshot = seen if seen.answered else replace(snapshot, at=seen.at, answered=False, notes=seen.notes)
                job = next((each for each in snapshot.jobs if each.place == job.place), replace(job, uid=""))

    @property
    def _draws(self) -> bool:
        return self.console.is_terminal and not self.json

    def _has_ended(self, job: Job) -> bool:
        self._missed = self._missed + 1 if job.state is State.MISSING else 0
        return job.state in (State.COMPLETED, State.FAILED) or self._missed > _GONE_LOOKS

    def _show(self, live: Live, snapshot: Snapshot, job: Job) -> None:
        if self._draws:
            live.update(screen(snapshot, (job,), self.console.width), refresh=True)
            return
        # The moment of the look changes each time, and the job's age with it; neither is news.
        told = _object(replace(snapshot, at=0.0), (job,)) if self.json else line(job, snapshot.at)
        if told == self._told:
            return
        self._told = told
        if self.json:
            self.console.out(_object(snapshot, (job,), indent=None))
        else:
            stamp = time.strftime("%H:%M:%S")
            self.console.print(f"{stamp}  {told}", markup=False, highlight=False, soft_wrap=True)


def _object(snapshot: Snapshot, found: Sequence[Job], indent: int | None = 1) -> str:
    told = [summary(job, snapshot.at) for job in found]
    return as_json({"jobs": told, "stack": replace(snapshot, jobs=tuple(found))}, indent)
