"""Why a job restarted, failed, or says nothing."""

from collections.abc import Iterator

from cli.explain.exits import meaning
from cli.explain.finding import Cause, Finding, counted
from cli.observed.snapshot import Job, Snapshot, State
from cli.view.render import duration, exit_words

_SILENT_STEPS = 20
"""A job that has done no step for as long as so many take, and a minute at least, is worth a look."""
_SILENT_SECONDS = 60
_PEER_LOST = 134


def restarts(snapshot: Snapshot, job: Job) -> Iterator[Finding]:
    """One finding for each restart whose cause is known, the newest first, and one for the others."""
    known: set[int] = set()
    for attempt in range(job.restarts - 1, -1, -1):
        if finding := _end_of(snapshot, job, attempt):
            known.add(attempt)
            yield finding
    unknown = job.restarts - len(known)
    if unknown > 0:
        what = f"The job restarted {counted(unknown, 'time')} without a word of any host."
        told = tuple(_said(job))
        yield Finding(Cause.RESTARTED, what, None, told, (f"multislice logs {job.place.name} -s {snapshot.stack} -p",))


def failed(snapshot: Snapshot, job: Job) -> Iterator[Finding]:
    """Why the job has failed, if it has."""
    if job.state is not State.FAILED:
        return
    said = job.said("Failed")
    words = (f"JobSet: {said.reason}: {said.message}",) if said else ()
    last = _end_of(snapshot, job, job.restarts)
    over = f" It had restarted {counted(job.restarts_counted, 'time')}, as often as it may." if _over(job) else ""
    what = f"The job has failed. {last.what if last else 'No host left word of it.'}{over}"
    retry = f"try again from its last checkpoint: multislice retry {job.place.name} -s {snapshot.stack}"
    evidence = (*(last.evidence if last else ()), *words)
    yield Finding(Cause.FAILED, what, said.since if said else None, evidence, (*(last.next if last else ()), retry))


def going_on(snapshot: Snapshot, job: Job) -> Iterator[Finding]:
    """That a job is complete, or goes on, or has done no step for long."""
    training, at = job.files.training, job.files.last_step_at
    if job.state is State.COMPLETED:
        said = job.said("Completed")
        what = f"The job is complete, after {counted(training.step, 'step')}."
        yield Finding(Cause.COMPLETED, what, said.since if said else None)
    if job.state is not State.RUNNING:
        return
    quiet = snapshot.at - at if at else 0.0
    if training.step and quiet > max(_SILENT_SECONDS, _SILENT_STEPS * training.step_ms / 1000):
        what = f"All hosts run, and no step has ended for {duration(quiet)}; the last one took"
        what += f" {duration(training.step_ms / 1000)}."
        advice = f"see what they do: multislice logs {job.place.name} -s {snapshot.stack} --all --since 10m"
        hang = (
            "after training.step_timeout_minutes the hosts end by themselves, with exit code 24, and the job restarts"
        )
        yield Finding(Cause.SILENT, what, at, (f"last step: {training.step} of {training.steps}",), (advice, hang))
    elif training.step:
        left = duration(training.seconds_left())
        what = f"The job runs: step {training.step} of {training.steps}, {left} left."
        yield Finding(Cause.RUNNING, what, None)
    else:
        what = "All hosts run, and the first step has not ended: JAX compiles, or restores a checkpoint."
        yield Finding(Cause.RUNNING, what, max((pod.started or 0.0 for pod in job.pods), default=None))


def _end_of(snapshot: Snapshot, job: Job, attempt: int) -> Finding | None:
    """How the start after `attempt` restarts ended, by the first host that failed in it."""
    names = {"job": job.place.name, "stack": snapshot.stack}
    records = [fail for fail in job.files.failures if fail.attempt == attempt and fail.at >= job.created]
    # Who lost a peer knows nothing; the peer's own word, if it left one, came first or comes later.
    records.sort(key=lambda fail: (fail.code == _PEER_LOST, fail.at))
    killed = [pod for pod in job.pods if pod.attempt == attempt and pod.phase == "Failed" and pod.exit_code]
    killed.sort(key=lambda pod: (pod.exit_code == _PEER_LOST, pod.host))
    if records and (records[0].code != _PEER_LOST or not killed):
        first = records[0]
        means = meaning(first.code)
        what = f"Restart {attempt + 1}: " if attempt < job.restarts else ""
        what += f"host {first.host} exited {exit_words(first.code)}: {means.what}."
        told = (f"{first.host}: {first.cause}",)
        return Finding(Cause.RESTARTED, what, first.at, told, (means.next.format(**names),))
    if killed:
        pod = killed[0]
        means = meaning(pod.exit_code or 0)
        what = f"Restart {attempt + 1}: " if attempt < job.restarts else ""
        what += f"host {pod.host} exited {exit_words(pod.exit_code)}: {means.what}."
        told = (f"{pod.name} on {pod.node}", *((pod.ended_for,) if pod.ended_for else ()))
        return Finding(Cause.RESTARTED, what, pod.created, told, (means.next.format(**names),))
    return None


def _over(job: Job) -> bool:
    return job.restarts_counted >= job.max_restarts > 0


def _said(job: Job) -> Iterator[str]:
    """What JobSet and the Job controller said of failed slices."""
    for event in job.events:
        if event.warning and event.kind in ("JobSet", "Job"):
            yield f"{event.kind} {event.name}: {event.reason}: {event.message}"
    for each in job.slice_jobs:
        yield from (f"Job {each.name}: {said.message}" for said in each.conditions if said.kind == "Failed")
