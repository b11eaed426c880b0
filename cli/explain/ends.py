"""Why a job restarted, failed, or says nothing."""

from collections.abc import Iterator

from cli.explain.exits import meaning
from cli.explain.finding import Cause, Finding, counted, submit_again
from cli.observed.first_cause import Traces
from cli.observed.kind import Kind
from cli.observed.snapshot import Job, Snapshot, State
from cli.view.render import code_words, duration, exit_words

_SILENT_STEPS = 20
"""A job that has done no step for as long as so many take, and a minute at least, is worth a look."""
_SILENT_SECONDS = 60


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
        yield Finding(Cause.RESTARTED, what, None, told, (f"multislice logs {job.place.name} {snapshot.options} -p",))


def failed(snapshot: Snapshot, job: Job) -> Iterator[Finding]:
    """Why the job has failed, if it has."""
    if job.state is not State.FAILED:
        return
    said = job.said("Failed")
    words = (f"JobSet: {said.reason}: {said.message}",) if said else ()
    last = _end_of(snapshot, job, job.restarts)
    over = f" It had restarted {counted(job.restarts_counted, 'time')}, as often as it may." if _over(job) else ""
    what = f"The job has failed. {last.what if last else 'No host left word of it.'}{over}"
    evidence = (*(last.evidence if last else ()), *words)
    advice = (*(last.next if last else ()), *_try_again(snapshot, job))
    yield Finding(Cause.FAILED, what, said.since if said else None, evidence, advice)


def going_on(snapshot: Snapshot, job: Job) -> Iterator[Finding]:
    """That a job is complete, or goes on, or has done no step for long."""
    if job.state is State.COMPLETED:
        said, step = job.said("Completed"), job.files.training.step
        what = f"The job is complete, after {counted(step, 'step')}." if step else "The job is complete."
        yield Finding(Cause.COMPLETED, what, said.since if said else None)
    elif job.state is State.RUNNING and job.kind is Kind.TRAINING:
        yield _trains(snapshot, job)
    elif job.state is State.RUNNING:
        program = "the function" if job.kind is Kind.FUNCTION else "the program"
        advice = f"see what they do: multislice logs {job.place.name} {snapshot.options} --all --since 10m"
        since = max((pod.started or 0.0 for pod in job.pods), default=None)
        yield Finding(Cause.RUNNING, f"All hosts run {program}.", since, (), (advice,))


def _trains(snapshot: Snapshot, job: Job) -> Finding:
    training, at = job.files.training, job.files.last_step_at
    quiet = snapshot.at - at if at else 0.0
    if training.step and quiet > max(_SILENT_SECONDS, _SILENT_STEPS * training.step_ms / 1000):
        what = f"All hosts run, and no step has ended for {duration(quiet)}; the last one took"
        what += f" {duration(training.step_ms / 1000)}."
        advice = f"see what they do: multislice logs {job.place.name} {snapshot.options} --all --since 10m"
        hang = (
            "after training.step_timeout_minutes the hosts end by themselves, with exit code 24, and the job restarts"
        )
        return Finding(Cause.SILENT, what, at, (f"last step: {training.step} of {training.steps}",), (advice, hang))
    if training.step:
        left = duration(training.seconds_left())
        return Finding(Cause.RUNNING, f"The job runs: step {training.step} of {training.steps}, {left} left.", None)
    # https://cloud.google.com/tpu/docs/troubleshooting/trouble-tf asks for as much patience.
    what = "All hosts run, and the first step has not ended: JAX compiles, which takes 5 minutes or more for a large"
    what += " model, or restores a checkpoint."
    return Finding(Cause.RUNNING, what, max((pod.started or 0.0 for pod in job.pods), default=None))


def _try_again(snapshot: Snapshot, job: Job) -> tuple[str, ...]:
    command = submit_again(snapshot, job)
    match job.kind:
        case Kind.TRAINING:
            return (f"try again from its last checkpoint: {command}",)
        case Kind.CONTAINER:
            return (f"try again: {command}",)
        case Kind.FUNCTION:
            return ()  # Whoever called it has been told, and calls again.


def _end_of(snapshot: Snapshot, job: Job, attempt: int) -> Finding | None:
    """How the start after `attempt` restarts ended, by the first host that failed in it."""
    names = {"job": job.place.name, "stack": snapshot.stack, "options": snapshot.options}
    first = Traces(job.place.name, job.created, job.pods, job.files.failures, job.events).first_cause(attempt)
    if first is None:
        return None
    what = _ended(job, attempt, first.host, first.code)
    advice = meaning(first.code, job.kind).next.format(**names)
    return Finding(Cause.RESTARTED, what, first.at, first.evidence, (advice,))


def _ended(job: Job, attempt: int, host: str, code: int) -> str:
    which = f"Restart {attempt + 1}: " if attempt < job.restarts else ""
    words = code_words(code) if job.kind is Kind.CONTAINER else exit_words(code)
    return f"{which}host {host} exited {words}: {meaning(code, job.kind).what}."


def _over(job: Job) -> bool:
    return job.restarts_counted >= job.max_restarts > 0


def _said(job: Job) -> Iterator[str]:
    """What JobSet and the Job controller said of failed slices."""
    for event in job.events:
        if event.warning and event.kind in ("JobSet", "Job"):
            yield f"{event.kind} {event.name}: {event.reason}: {event.message}"
    for each in job.slice_jobs:
        yield from (f"Job {each.name}: {said.message}" for said in each.conditions if said.kind == "Failed")
