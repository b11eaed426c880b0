"""`multislice explain`: finds what can be said of a job and prints it."""

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.text import Text

from cli.deployed import Deployed
from cli.explain.explain import explain
from cli.explain.finding import Finding
from cli.observed.json import as_json
from cli.observed.observe import Observer, job_of, named
from cli.observed.snapshot import Job, Snapshot
from cli.status.command import answered
from cli.view.render import duration


def command(deployed: Deployed, name: str | None, console: Console, *, json: bool) -> int:
    """Print what holds a job up or ended it; the exit status.

    Raises:
        Halt: there is no such job, or the cluster does not answer.
    """
    snapshot = answered(Observer(deployed).look(*named(deployed, name)))
    job = job_of(deployed, snapshot, name)
    found = explain(snapshot, job)
    if json:
        console.out(as_json({"job": job.place.name, "state": job.state, "findings": found, "notes": snapshot.notes}))
    else:
        console.print(text(snapshot, job, found), soft_wrap=True)
    return 0


def text(snapshot: Snapshot, job: Job, found: tuple[Finding, ...]) -> RenderableType:
    """The findings for a person; commands are never wrapped, for they are copied."""
    return Group(*_parts(snapshot, job, found))


def _parts(snapshot: Snapshot, job: Job, found: tuple[Finding, ...]) -> Iterator[RenderableType]:
    yield Text.assemble((job.place.name, "bold"), f"  {job.state}")
    for finding in found:
        yield Text()
        since = f"  since {duration(snapshot.at - finding.since)}" if finding.since else ""
        yield Text.assemble(finding.what, (since, "dim"))
        yield from (Text(f"  {line}", "dim") for line in finding.evidence if line)
        yield from (Text(f"  -> {line}") for line in finding.next)
    if not found:
        yield Text("Nothing holds it up that the cluster or its files would tell of.")
    yield from (Text(note, "dim") for note in snapshot.notes)
