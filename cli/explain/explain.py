"""`multislice explain` collects the findings about a job and prints them."""

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.text import Text

from cli.answer import as_json, waiting
from cli.deployed import Deployed
from cli.explain import hosts, queueing
from cli.explain.finding import Finding
from cli.observed.observe import Observer
from cli.observed.snapshot import JobStatus, Snapshot
from cli.render import duration
from infra.cluster.job_state import State


def command(deployed: Deployed, name: str | None, console: Console, *, json: bool) -> int:
    """Print what delays a job or ended it. Return the exit status."""
    with waiting("reading the cluster and the records of the job"):
        snapshot, job = Observer(deployed).job(name)
    found = explain(snapshot, job)
    if json:
        console.out(as_json({"job": job.ref.name, "state": job.state, "findings": found, "notes": snapshot.notes}))
    else:
        # Lines are never wrapped, because users copy commands.
        console.print(Group(*_parts(snapshot, job, found)), soft_wrap=True)
    return 0


def explain(snapshot: Snapshot, job: JobStatus) -> tuple[Finding, ...]:
    """Return the findings about a job: first what delays it now, then what ended its earlier starts."""
    found: list[Finding] = [hosts.deleted(job)] if job.deleted else []
    if job.state is State.FAILED:
        found += hosts.failed(snapshot, job)
    elif job.state is not State.COMPLETED:
        found += queueing.findings(snapshot, job)
        if job.state in (State.STARTING, State.RUNNING):
            found += hosts.placing(snapshot, job)
    found += hosts.going_on(snapshot, job)
    found += hosts.restarts(snapshot, job)
    return tuple(found)


def _parts(snapshot: Snapshot, job: JobStatus, found: tuple[Finding, ...]) -> Iterator[RenderableType]:
    yield Text.assemble((job.ref.name, "bold"), f"  {job.state}")
    for finding in found:
        yield Text()
        since = f"  since {duration(snapshot.at - finding.since)}" if finding.since else ""
        yield Text.assemble(finding.what, (since, "dim"))
        yield from (Text(f"  {line}", "dim") for line in finding.evidence if line)
        yield from (Text(f"  -> {line}") for line in finding.next)
    if not found:
        yield Text("Nothing in the cluster or in the job's files delays it.")
    yield from (Text(note, "dim") for note in snapshot.notes)
