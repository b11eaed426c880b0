"""All that can be said of one job: a pure function of a snapshot."""

from cli.explain import ends, placing, queueing
from cli.explain.finding import Finding
from cli.observed.snapshot import Job, Snapshot, State


def explain(snapshot: Snapshot, job: Job) -> tuple[Finding, ...]:
    """What holds the job up now comes first, then what became of its earlier starts."""
    found: list[Finding] = []
    if job.state is State.FAILED:
        found += ends.failed(snapshot, job)
    elif job.state is not State.COMPLETED:
        found += queueing.findings(snapshot, job)
        if job.state in (State.STARTING, State.RUNNING):
            found += placing.findings(snapshot, job)
    found += ends.going_on(snapshot, job)
    found += ends.restarts(snapshot, job)
    return tuple(found)
