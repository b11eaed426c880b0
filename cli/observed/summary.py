"""A job in a few figures, the same for every command that shows one."""

from dataclasses import dataclass

from cli.observed.kind import Kind
from cli.observed.snapshot import Job, Snapshot, State


@dataclass(frozen=True)
class Summary:
    """One job."""

    name: str
    namespace: str
    queue: str
    kind: Kind
    state: State
    position: int | None
    """In its queue, from 1; None: it does not wait there."""
    age_seconds: float | None
    """Since it was submitted; None: it is not there."""
    slices: int
    hosts: int
    """Of all slices."""
    hosts_running: int
    restarts: int
    max_restarts: int
    """Of those that count."""
    run: str
    """Folder name of its current run; empty before the first start has opened it."""
    step: int
    steps: int
    loss: float | None
    tokens_per_second: float
    seconds_left: float | None
    """At the pace of the last step; None while it does not run."""
    checkpoint_step: int | None
    usd: float | None
    """Spent so far in its current run; None: unknown."""
    goodput: float | None
    """Share of productive steps in the time of the run."""


def summary(job: Job, at: float) -> Summary:
    """The figures of a job at the moment `at`."""
    training, spent = job.files.training, job.files.goodput
    runs = job.state is State.RUNNING and training.step > 0
    return Summary(
        name=job.place.name,
        namespace=job.place.namespace,
        queue=job.place.queue,
        kind=job.kind,
        state=job.state,
        position=job.position,
        age_seconds=at - job.created if job.uid else None,
        slices=job.slices,
        hosts=job.hosts,
        hosts_running=job.running,
        restarts=job.restarts,
        max_restarts=job.max_restarts,
        run=training.run_id,
        step=training.step,
        steps=training.steps,
        loss=training.loss,
        tokens_per_second=training.tokens_per_second,
        seconds_left=training.seconds_left() if runs else None,
        checkpoint_step=training.checkpoint_step,
        usd=job.files.usd,
        goodput=spent.productive if spent else None,
    )


def summaries(snapshot: Snapshot) -> list[Summary]:
    """All jobs."""
    return [summary(job, snapshot.at) for job in snapshot.jobs]
