"""`multislice explain` collects the findings about a job and prints them; here are those about its wait in a queue."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from cli.answer import as_json, waiting
from cli.deployed import Deployed
from cli.explain import hosts
from cli.explain.finding import Cause, Finding, after_change, in_stack_file, raise_priority, submit_again
from cli.observed.observe import Observer
from cli.observed.snapshot import JobStatus, Queue, Snapshot
from cli.render import counted, duration
from infra.cluster.job_state import Kind, State, Workload
from infra.stack.manifests import Condition, amount
from infra.stack.names import GATES, MAX_TIME_LABEL, QUEUE_LABEL, TPU_RESOURCE


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
        found += findings(snapshot, job)
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


_TAKEN = re.compile(r"insufficient unused quota for (\S+) in flavor (\S+?),? (\S+) more needed")
_TOO_SMALL = re.compile(r"insufficient quota for (\S+) in flavor (\S+?),.*?maximum capacity \((\S+?)\)")
_MAX_HOLDERS = 10
"""Largest number of jobs to name that hold what a job waits for."""
_PREEMPTOR = re.compile(r"\(UID: ([^,)]+), JobUID: ([^,)]+)\)")
_PREEMPTION = {
    "InClusterQueue": "it has a higher priority in the same queue",
    "InCohortReclamation": "its queue is taking back chips that it had lent",
    "InCohortFairSharing": "its queue had less than its fair share",
    "InCohortReclaimWhileBorrowing": "its queue is taking back chips and borrowing more",
}
_EVICTION = {
    "Preempted": "another job preempted it",
    "PodsReadyTimeout": "its hosts did not all become ready in time",
    "NodeFailures": "a node of its slices failed",
    "AdmissionCheck": "an admission check was withdrawn",
    "ClusterQueueStopped": "its queue was stopped",
    "LocalQueueStopped": "its LocalQueue was stopped, which pauses it",
    "Deactivated": "it was deactivated",
}
_TIME_OVER = "MaximumExecutionTime"
_TRIES_OVER = "RequeuingLimitExceeded"


def findings(snapshot: Snapshot, job: JobStatus) -> Iterator[Finding]:
    """Yield what keeps a job in its queue or evicted it."""
    workload = job.workload
    if not job.uid:
        what = f"Namespace {job.ref.namespace} has no JobSet {job.ref.name}: it was deleted, or never submitted."
        yield Finding(Cause.MISSING, what, None, next=(f"submit it: {submit_again(snapshot.reader, job)}",))
    elif workload is None:
        if job.suspended:
            yield _no_workload(snapshot, job)
    elif job.missing_queue and not workload.admitted_by and workload.active:
        yield _no_queue(snapshot, job)
    elif workload.paused and not workload.admitted_by:
        said, what = workload.condition("QuotaReserved"), "The job is paused and holds no chips."
        advice = in_stack_file(snapshot.reader, "to resume it, set its `paused` to false")
        if not snapshot.stack:
            what = "The job holds no chips, because its LocalQueue is stopped."
            advice = "to resume it, remove stopPolicy from its LocalQueue"
        evidence = (said.message,) if said else ()
        yield Finding(Cause.PAUSED, what, said.since if said else None, evidence, (advice,))
    else:
        if workload.evictions or workload.condition("Evicted"):
            yield from _evicted(snapshot, job, workload)
        if not workload.admitted_by and workload.active:
            yield from _waiting(snapshot, job, workload)
        elif workload.admitted_by and not workload.holds("Admitted"):
            yield from _capacity(snapshot, workload)


def _no_workload(snapshot: Snapshot, job: JobStatus) -> Finding:
    by_hand = "to run it without a queue, set its spec.suspend to false"
    if not job.has_workloads:
        what = "The job is suspended by its spec.suspend. Why is not known, because no Workload can be read."
        queue = job.ref.queue
        evidence, advice = ((f"its queue is {queue}",), ()) if queue else ((), (by_hand,))
        return Finding(Cause.NOT_ADMITTED, what, job.created, evidence, advice)
    if not job.ref.queue:
        what = "The job is suspended, and it names no queue from which it would be admitted."
        whose = "the name of a team" if snapshot.stack else f"a LocalQueue of {snapshot.place}"
        advice = f"submit it with the label {QUEUE_LABEL} set to {whose}"
        if not snapshot.stack:
            advice += f", or, {by_hand}"
        return Finding(Cause.NO_WORKLOAD, what, job.created, next=(advice,))
    if job.missing_queue:
        return _no_queue(snapshot, job)
    what = "Kueue has not processed the job: its controller is down, or the job's queue does not exist."
    existing = ", ".join(queue.name for queue in snapshot.queues)
    evidence = (f"its queue is {job.ref.queue}", *([f"existing queues: {existing}"] if existing else ()))
    return Finding(Cause.NO_WORKLOAD, what, job.created, evidence, (snapshot.reader.command("doctor"),))


def _no_queue(snapshot: Snapshot, job: JobStatus) -> Finding:
    what = f"LocalQueue {job.missing_queue} does not exist in namespace {job.ref.namespace}; it has: "
    what += f"{', '.join(sorted(snapshot.local_queues)) or 'none'}."
    advice = f"set its label {QUEUE_LABEL} to a LocalQueue of {snapshot.place}"
    return Finding(Cause.NOT_ADMITTED if job.workload else Cause.NO_WORKLOAD, what, job.created, next=(advice,))


def _waiting(snapshot: Snapshot, job: JobStatus, workload: Workload) -> Iterator[Finding]:
    if workload.gates:
        what = "Kueue does not consider the job until its gates are removed."
        yield Finding(Cause.NOT_ADMITTED, what, workload.created, (f"{GATES}: {workload.gates}",))
        return
    queue = next((queue for queue in snapshot.queues if queue.name == job.ref.queue), None)
    if queue and queue.active and not queue.active.holds:
        yield _closed(snapshot, queue, queue.active)
        return
    if workload.requeue_at and workload.requeue_at > snapshot.at:
        seconds = round(workload.requeue_at - snapshot.at)
        what = f"Kueue is holding the job back after its eviction and will try to admit it again in {seconds} s."
        yield Finding(Cause.BACKING_OFF, what, workload.created)
        return
    if said := workload.condition("QuotaReserved"):
        yield _refused(snapshot, job, workload, said)


def _closed(snapshot: Snapshot, queue: Queue, said: Condition) -> Finding:
    held, reader = said.reason == "Stopped", snapshot.reader
    what = f"Queue {queue.name} admits no job: " + ("it is on hold." if held else f"it is not ready ({said.reason}).")
    evidence, advice = said.message, f"find the cause: {reader.command('doctor')}"
    if queue.over_budget:
        what = f"Queue {queue.name} admits no job, because the budget of the stack is used up."
        change = f"to resume its jobs, raise budget.usd_total in the stack file of {snapshot.stack}"
        evidence, advice = queue.over_budget, f"{change}, then {reader.run('enforce-budget')}"
    elif held and snapshot.stack:
        advice = in_stack_file(reader, f"open it: set teams.{queue.name}.admission: open")
    elif held:
        advice = f"open it: remove stopPolicy from ClusterQueue {queue.name}"
    return Finding(Cause.QUEUE_CLOSED, what, said.since, (evidence,), (advice,))


def _refused(snapshot: Snapshot, job: JobStatus, workload: Workload, said: Condition) -> Finding:
    place = f" It is number {job.position} in line." if job.position else ""
    earlier = raise_priority(snapshot.reader, job)
    since = max(workload.created, said.since)
    evidence, requests = (said.message,), f"The job requests {workload.chips} chips"
    # Kueue joins the reasons of all flavors, of which one may be sufficient later.
    too_small, taken = ([*pattern.finditer(said.message)] for pattern in (_TOO_SMALL, _TAKEN))
    if too_small and {found[2] for found in taken} <= {found[2] for found in too_small}:
        resource, most = _largest(too_small)
        asks = requests if resource == TPU_RESOURCE else f"The job requests more {resource}"
        what = f"{asks}, but its queue can have at most {most}: it is never admitted."
        fewer = "lower job.slices.count" if job.declared else "submit it again with fewer slices"
        quota = f"raise the team's quota: {snapshot.reader.command('review')}" if snapshot.stack else "raise its quota"
        return Finding(Cause.QUOTA_TOO_SMALL, what, since, evidence, (f"{quota}; or {fewer}",))
    if taken:
        # Kueue's numbers may be old. The chips that are held now are in the workloads.
        flavors = dict.fromkeys(found[2] for found in taken if found[1] == TPU_RESOURCE)
        held = _held(snapshot, job, workload, flavors)
        chips = {flavor: sum(other.held_chips.get(flavor, 0) for _, other in held) for flavor in flavors}
        in_use = [f"{n} in flavor {flavor}" if len(chips) > 1 else str(n) for flavor, n in chips.items() if n]
        compared = f"and other jobs hold {', '.join(in_use)}" if in_use else "more than its queue had free"
        what = f"{requests}, {compared}.{place}"
        if not chips:
            found = taken[0]
            what = f"The job needs {found[3]} more {found[1]} than is free in flavor {found[2]}.{place}"
        return Finding(Cause.QUOTA_TAKEN, what, since, (*evidence, *_holders(held)), (earlier,))
    if "topology" in said.message:
        what = f"The quota is sufficient, but no slice has all its hosts free and ready.{place}"
        advice = f"see which hosts are missing: multislice status {snapshot.options}"
        return Finding(Cause.NO_SLICE_FREE, what, since, evidence, (advice,))
    what = f"Kueue has not admitted the job yet.{place}"
    return Finding(Cause.NOT_ADMITTED, what, since, evidence, (earlier,) if job.position else ())


def _largest(too_small: Iterable[re.Match[str]]) -> tuple[str, str]:
    limits = [(found[1], found[3]) for found in too_small]
    resource = TPU_RESOURCE if TPU_RESOURCE in dict(limits) else limits[0][0]
    return resource, max((most for name, most in limits if name == resource), key=amount)


def _held(
    snapshot: Snapshot, job: JobStatus, wanting: Workload, flavors: Collection[str]
) -> list[tuple[int, Workload]]:
    """Return the workloads with chips of these flavors and the number of these chips, the largest first."""
    members = next((queue.cohort_members for queue in snapshot.queues if queue.name == job.ref.queue), ())
    found = (
        (sum(count for flavor, count in each.held_chips.items() if flavor in flavors), each)
        for each in snapshot.workloads
        if each.admitted_by in (job.ref.queue, *members) and each.uid != wanting.uid and not each.holds("Finished")
    )
    return sorted((pair for pair in found if pair[0]), key=lambda pair: -pair[0])


def _holders(held: Sequence[tuple[int, Workload]]) -> Iterator[str]:
    for chips, other in held[:_MAX_HOLDERS]:
        yield f"{other.namespace}/{other.owner or other.name} has {chips} chips, priority {other.priority}"
    if rest := held[_MAX_HOLDERS:]:
        yield f"{counted(len(rest), 'more job')} have {sum(chips for chips, _ in rest)} chips"


def _capacity(snapshot: Snapshot, workload: Workload) -> Iterator[Finding]:
    pending = [check for check in workload.checks if check[1] != "Ready"]
    if not pending:
        return
    said = workload.condition("QuotaReserved")
    evidence = tuple(f"{name}: {state}: {message}" for name, state, message in pending)
    what = "The job has its quota and is waiting for Google Cloud to provide its slices."
    if not snapshot.stack:
        what = f"The job has its quota and is waiting for {', '.join(name for name, *_ in pending)}."
    advice = f"nothing to do; to watch it: multislice status {snapshot.options} --watch"
    yield Finding(Cause.CAPACITY_PENDING, what, said.since if said else None, evidence, (advice,))


def _evicted(snapshot: Snapshot, job: JobStatus, workload: Workload) -> Iterator[Finding]:
    said, preempted = workload.condition("Evicted"), workload.condition("Preempted")
    times = tuple(f"{reason}: {counted(count, 'time')} so far" for reason, count in workload.evictions.items())
    if not workload.active:
        yield _deactivated(snapshot, job, workload, times)
        return
    if said is None:
        return
    message = said.message.removeprefix("Previously: ")
    back = "" if said.holds else " It has been admitted again since."
    begins = "starts again" if job.kind is Kind.CONTAINER else "continues from its last checkpoint"
    goes_on = f"nothing to do: it {begins} when it is admitted again"
    if preempted and (said.reason == "Preempted" or "reempted" in message):
        what = f"The job was preempted by {_preemptor(snapshot, preempted)}.{back}"
        advice = (goes_on, raise_priority(snapshot.reader, job))
        yield Finding(Cause.PREEMPTED, what, said.since, (message, *times), () if back else advice)
        return
    reason = said.reason if said.holds else next(iter(workload.evictions), said.reason)
    why = _EVICTION.get(reason, reason)
    what = f"The job was evicted and put back into its queue: {why}.{back}"
    yield Finding(Cause.EVICTED, what, said.since, (message, *times), () if back else (goes_on,))


def _preemptor(snapshot: Snapshot, said: Condition) -> str:
    why = _PREEMPTION.get(said.reason, "")
    found = _PREEMPTOR.search(said.message)
    uids = found.groups() if found else ()
    other = next((each for each in snapshot.workloads if each.uid and each.uid in uids), None)
    name = f"job {other.owner or other.name} of {other.namespace}" if other else "another job"
    return f"{name}, because {why}" if why else name


def _deactivated(snapshot: Snapshot, job: JobStatus, workload: Workload, times: tuple[str, ...]) -> Finding:
    said = workload.condition("Evicted") or workload.condition("DeactivationTarget")
    words = " ".join(f"{each.reason} {each.message}" for each in workload.conditions)
    if _TIME_OVER in words or "maximum execution time" in words:
        limit = "max_hours" if snapshot.stack else "maximum execution time"
        what = f"The job has used up its {limit} and will not be admitted again."
        advice = after_change(snapshot.reader, job, f"raise {limit}" if snapshot.stack else f"raise {MAX_TIME_LABEL}")
    elif _TRIES_OVER in words or "re-queue" in words:
        limit = "scheduling.requeueing.limit allows" if snapshot.stack else "Kueue allows"
        what = f"The job was evicted as often as {limit} and will not be admitted again."
        again = submit_again(snapshot.reader, job)
        advice = f"fix what kept its hosts from becoming ready, then submit it again: {again}"
    else:
        what = "The job was deactivated by a user and will not be admitted until its Workload is activated."
        advice = f"{snapshot.kubectl} patch workload {workload.name} -n {workload.namespace} --type merge"
        advice += """ -p '{"spec": {"active": true}}'"""
    evidence = (said.message, *times) if said else times
    # The caller still has the function, but its files may have been deleted.
    again = "call it again, with a higher max_hours if it was used up" if job.kind is Kind.FUNCTION else advice
    return Finding(Cause.DEACTIVATED, what, said.since if said else None, evidence, (again,))
