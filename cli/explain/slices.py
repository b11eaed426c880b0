"""Finds out why slices were lost that the others of their job train on without."""

from collections import Counter
from collections.abc import Iterator

from cli.explain.finding import Cause, Finding, meaning
from cli.observed.observe import end_of_slice
from cli.observed.snapshot import Job, SliceAway, Snapshot, slices_away
from cli.render import counted, duration

_RETURNS_SHOWN = 5
"""Number of lost slices that have returned, the newest ones, that have a finding of their own."""


def away(snapshot: Snapshot, job: Job) -> Iterator[Finding]:
    """Yield a finding for each slice that does not train now."""
    found = slices_away(job)
    for one in found:
        evidence = (*_evidence(job, one), *_of_pods(job, one), *_of_job(job, one.slice))
        others = counted(job.slices - len(found), "slice")
        times = f" It has restarted {counted(one.restarts, 'time')}." if one.restarts else ""
        what = f"Slice {one.slice} was lost and is {_DOING[one.doing]}; {others} of {job.slices} train.{times}"
        yield Finding(Cause.SLICE_LOST, what, one.since, tuple(dict.fromkeys(evidence)), (_advice(snapshot, one),))


_DOING = {
    "restarting": "restarting",
    "joining": "joining, which takes until its program is compiled and it has the training state",
    "waiting for nodes": "waiting for nodes",
    "cannot start its container": "back on its nodes, but cannot start its container",
}


def returned(job: Job) -> Iterator[Finding]:
    """Yield a finding for each lost slice that has returned, newest first."""
    if job.fewest_slices is None or job.files.goodput is None:
        return
    found = [each for each in job.files.goodput.absences if each.until is not None]
    for each in reversed(found[-_RETURNS_SHOWN:]):
        end = end_of_slice(job, each.slice, each.since)
        how = f": {end.words(job.kind)}: {meaning(end.code, job.kind).what}" if end else ""
        what = f"Slice {each.slice} was lost after step {each.step} and was back {duration(each.seconds)} later{how}."
        evidence = (each.cause, *(end.evidence if end else ()))
        yield Finding(Cause.SLICE_LOST, what, each.since, tuple(dict.fromkeys(evidence)))
    if earlier := found[:-_RETURNS_SHOWN]:
        times = Counter(each.slice for each in earlier)
        which = ", ".join(f"slice {one} {counted(count, 'time')}" for one, count in sorted(times.items()))
        yield Finding(Cause.SLICE_LOST, f"Before that, slices were lost and returned: {which}.", None)


def _evidence(job: Job, one: SliceAway) -> Iterator[str]:
    if one.cause:
        yield one.cause
    end = end_of_slice(job, one.slice, one.since) if one.since else None
    if end:
        yield f"{end.words(job.kind)}: {meaning(end.code, job.kind).what}"
        yield from end.evidence


def _of_pods(job: Job, one: SliceAway) -> Iterator[str]:
    for pod in job.pods_of(one.slice):
        for words in (pod.held_up, "" if pod.node else pod.waits_for, pod.ended_for):
            if words:
                yield f"{pod.host}: {words}"


def _of_job(job: Job, one: int) -> Iterator[str]:
    for each in job.slice_jobs:
        if each.slice_index == one:
            yield from (f"Job {each.name}: {said.message}" for said in each.conditions if said.kind == "Failed")


def _advice(snapshot: Snapshot, one: SliceAway) -> str:
    if one.doing == "waiting for nodes":
        return f"see which hosts are missing: {snapshot.reader.command('doctor')}"
    if one.doing == "cannot start its container":
        return f"fix the image or the objects that the pod refers to, then {snapshot.reader.run_up()}"
    return f"nothing to do; to watch it: multislice status {snapshot.options} --watch"
