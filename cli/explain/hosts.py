"""Finds out why hosts of an admitted job do not run, and why a job restarted, failed or is silent."""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from cli.explain.finding import Cause, Finding, advise, after_change, meaning, submit_again
from cli.observed.causes import HostEnd, first_cause, refusals
from cli.observed.snapshot import JobStatus, Node, Snapshot
from cli.render import CORDONED, TAINTED, counted, duration, group_by_reason, numbered
from infra.cluster.job_state import Kind, State
from infra.stack.names import NODE_POOL_LABEL
from workloads.spec import BAD_HOST_KEY, ExitCode

_REFUSED = ("JobCreationFailed", "FailedCreate")
"""Reasons of events about Jobs and pods that the API server refused."""
_PASSES = re.compile("follower pod|leader pod|already exists")
"""Messages that are no errors: JobSet refuses the other hosts of a slice until the first one has a node, and may create
a Job again because it has not seen the first one yet."""
_RECENT_SECONDS = 900
"""A node has just refused a pod if that was at most this long ago."""
_UNHEALTHY = "no healthy devices"
"""Part of kubelet's message while the device plugin of a machine reports no healthy chip."""
_TRIES_AGAIN = "nothing to do: the job tries again, and such restarts do not count towards max_restarts"
_SILENT_STEPS = 20
_SILENT_SECONDS = 60
"""A job is silent if no step has ended for the time of this many steps, and for at least this many seconds."""


def placing(snapshot: Snapshot, job: JobStatus) -> Iterator[Finding]:
    """Yield what keeps hosts of an admitted job from running."""
    doctor = snapshot.reader.command("doctor")
    yield from _refused_objects(snapshot, job)
    yield from _refused_pods(snapshot, job)
    yield from _without_node(snapshot, job, doctor)
    yield from _on_lost_nodes(snapshot, job, doctor)
    yield from _not_started(snapshot, job)


def _refused_objects(snapshot: Snapshot, job: JobStatus) -> Iterator[Finding]:
    refusals = [event for event in job.events if event.reason in _REFUSED and not _PASSES.search(event.message)]
    missing = job.hosts + job.heads - len(job.pods)
    if refusals and missing > 0:
        what = f"The API server refuses {counted(missing, 'host')} of the job."
        messages = tuple(dict.fromkeys(f"{event.kind} {event.name}: {event.message}" for event in refusals[:3]))
        advice = after_change(snapshot.reader, job, "fix the cause")
        yield Finding(Cause.CREATION_REFUSED, what, refusals[-1].at, messages, (advice,))


def _without_node(snapshot: Snapshot, job: JobStatus, doctor: str) -> Iterator[Finding]:
    waiting = [pod for pod in job.pods if pod.waits_for and not pod.node]
    if not waiting:
        return
    said = " ".join(pod.waits_for for pod in waiting)
    marked = [node for node in snapshot.nodes if node.bad_host]
    cordoned = [node for node in snapshot.nodes if node.cordoned and CORDONED in said]
    away = [node for node in snapshot.nodes if not node.ready and TAINTED in said]
    evidence = [f"{', '.join(hosts)}: {message}" for message, hosts in group_by_reason(waiting).items()]
    evidence += [f"{node.name} is marked as a bad host: {node.bad_host}" for node in marked]
    evidence += [f"{node.name} is cordoned" for node in cordoned]
    evidence += [f"{node.name} is not ready: {node.not_ready}" for node in away]
    what = f"{counted(len(waiting), 'host')} of the job {'has' if len(waiting) == 1 else 'have'} no node"
    since, advice = min(pod.created for pod in waiting), [doctor]
    if marked:
        what += ": the free nodes belong to a bad slice"
        advice.append(
            f"once the node works again: {_operate(snapshot, f'taint nodes {marked[0].name} {BAD_HOST_KEY}-')}"
        )
    elif cordoned or away:
        why = [(cordoned, "cordoned"), (away, "not ready")]
        what += ": " + ", and ".join(f"{_names(nodes)} {words}" for nodes, words in why if nodes)
        if cordoned:
            names = " ".join(node.name for node in cordoned)
            advice.append(f"once they work again: {_operate(snapshot, f'uncordon {names}')}")
    elif CORDONED in said:
        # Members of a team see no nodes.
        what += ": nodes are cordoned"
    elif snapshot.stack:
        advice.append(f"if Google has no chips there, change slices.NAME.zone, then {snapshot.reader.run_up()}")
    cause = Cause.BAD_HOST if marked else Cause.NO_NODE
    yield Finding(cause, f"{what}.", since, tuple(evidence), tuple(advice))


def _names(nodes: Sequence[Node]) -> str:
    if len(nodes) == 1:
        return f"node {nodes[0].name} is"
    return f"nodes {', '.join(node.name for node in nodes)} are"


def _refused_pods(snapshot: Snapshot, job: JobStatus) -> Iterator[Finding]:
    events = [event for event in refusals(job) if event.node and snapshot.at - event.at < _RECENT_SECONDS]
    if job.running >= job.hosts:
        return
    for name in dict.fromkeys(event.node for event in events):
        told = [event for event in events if event.node == name]
        what = f"Node {name} refused {counted(len(told), 'pod')} of the job"
        what += f" before {'its program' if len(told) == 1 else 'their programs'} ran."
        if _UNHEALTHY in told[0].message:
            what += " Its chips are not healthy, as while Google repairs the machine."
        advice = (_TRIES_AGAIN, _elsewhere(snapshot, name))
        evidence = (f"{told[0].reason}: {told[0].message}",)
        yield Finding(Cause.POD_REFUSED, what, told[-1].at, evidence, advice)


def _elsewhere(snapshot: Snapshot, name: str) -> str:
    pool = next((node.pool for node in snapshot.nodes if node.name == name), "")
    alone = sum(node.pool == pool for node in snapshot.nodes) < 2
    nodes = name if alone else f"-l {NODE_POOL_LABEL}={pool}"
    # JobSet places a slice by its first host, so one cordoned node does not keep it from the pool.
    what = "the node" if alone else "all nodes of its slice"
    return f"to use another slice if one is free, cordon {what}: {_operate(snapshot, f'cordon {nodes}')}"


def _operate(snapshot: Snapshot, words: str) -> str:
    """Return a command of kubectl about nodes, which members of a team may not run."""
    reader = snapshot.reader
    asked = f"ask the owner of stack {reader.stack} to run: kubectl {words}"
    return asked if reader.is_member else f"{reader.kubectl} {words}"


def _on_lost_nodes(snapshot: Snapshot, job: JobStatus, doctor: str) -> Iterator[Finding]:
    for pod in job.pods:
        node = next((node for node in snapshot.nodes if node.name == pod.node), None)
        if pod.phase not in ("Running", "Terminating") or (node and node.ready):
            continue
        if node is None and (pod.is_head or not job.has_chips or not snapshot.nodes):
            continue  # Only the nodes of slices are read, and a user may not be allowed to read any.
        said = f"it is not ready: {node.not_ready}" if node else "it no longer exists"
        what = f"Host {pod.host} is on node {pod.node}, which does not answer."
        advice = "nothing to do: its pod is evicted after some minutes, and the job restarts"
        since = node.since if node else None
        yield Finding(Cause.NODE_LOST, what, since, (f"{pod.node}: {said}",), (advice, doctor))


def _not_started(snapshot: Snapshot, job: JobStatus) -> Iterator[Finding]:
    held = [pod for pod in job.pods if pod.held_up]
    if not held:
        return
    what = f"{counted(len(held), 'host')} cannot start the container: {held[0].held_up.partition(':')[0]}."
    advice = after_change(snapshot.reader, job, "fix the image or the objects that the pod refers to")
    evidence = tuple(f"{pod.host}: {pod.held_up}" for pod in held[:3])
    yield Finding(Cause.NOT_STARTED, what, min(pod.created for pod in held), evidence, (advice,))


def restarts(snapshot: Snapshot, job: JobStatus) -> Iterator[Finding]:
    """Yield a finding for each restart whose cause is known, newest first, and one for all others.

    Restarts in a row are one finding if the same node refused pods.
    """
    known = [(end, attempt) for attempt in reversed(range(job.restarts)) if (end := first_cause(job, attempt))]
    for _, group in groupby(known, key=lambda each: each[0].refused_by or each[1]):
        (newest, last), *_, (_, first) = 2 * list(group)
        yield _end(snapshot, job, newest, f"{numbered('Restart', first + 1, last + 1)}: ")
    unknown = job.restarts - len(known)
    if unknown > 0:
        what = f"The job restarted {counted(unknown, 'time')} for an unknown reason."
        what += " The cluster forgets its events after an hour."
        log = f"read its log: {snapshot.reader.command('logs', snapshot.word_for(job))} --previous"
        yield Finding(Cause.RESTARTED, what, None, tuple(_said(job)), (log,))


def failed(snapshot: Snapshot, job: JobStatus) -> Iterator[Finding]:
    """Yield the cause of the failure of a job."""
    said = job.condition("Failed")
    words = (f"JobSet: {said.reason}: {said.message}",) if said else ()
    end = first_cause(job, job.restarts)
    last = _end(snapshot, job, end) if end else None
    over = f" It had used up its {counted(job.max_restarts, 'restart')}." if job.used_up else ""
    what = f"The job has failed. {last.what if last else 'No host reported a cause.'}{over}"
    evidence = (*(last.evidence if last else ()), *words)
    again = submit_again(snapshot.reader, job)
    # The caller of a function has received the error.
    tries = {Kind.TRAINING: (f"try again from its last checkpoint: {again}",), Kind.CONTAINER: (f"try again: {again}",)}
    advice = (*(last.next if last else ()), *tries.get(job.kind, ()))
    yield Finding(Cause.FAILED, what, said.since if said else None, evidence, advice)


def deleted(job: JobStatus) -> Finding:
    """Return that a job is being deleted, and what its deletion waits for."""
    left = ", ".join(job.finalizers)
    evidence = (f"{job.ref.kind} {job.ref.name} waits for its finalizers: {left}",) if left else ()
    return Finding(Cause.DELETED, "The job is being deleted.", job.deleted, evidence)


def going_on(snapshot: Snapshot, job: JobStatus) -> Iterator[Finding]:
    """Yield a finding for a job that is complete, running or silent."""
    if job.state is State.COMPLETED:
        said, step = job.condition("Completed"), job.training.step
        what = f"The job is complete, after {counted(step, 'step')}." if step else "The job is complete."
        yield Finding(Cause.COMPLETED, what, said.since if said else None)
    elif job.state is State.RUNNING and job.kind is Kind.TRAINING:
        yield _trains(snapshot, job)
    elif job.state is State.RUNNING:
        program = "the function" if job.kind is Kind.FUNCTION else "the program"
        advice = f"see what they do: {snapshot.reader.command('logs', snapshot.word_for(job))} --all --since 10m"
        since = max((pod.started or 0.0 for pod in job.pods), default=None)
        yield Finding(Cause.RUNNING, f"All hosts run {program}.", since, (), (advice,))


def _trains(snapshot: Snapshot, job: JobStatus) -> Finding:
    training, at = job.training, job.training.last_step_at
    quiet = snapshot.at - at if at else 0.0
    if quiet > max(_SILENT_SECONDS, _SILENT_STEPS * training.step_ms / 1000):
        what = f"All hosts run, and no step has ended for {duration(quiet)}; the last one took"
        what += f" {duration(training.step_ms / 1000)}."
        advice = f"see what they do: {snapshot.reader.command('logs', snapshot.word_for(job))} --all --since 10m"
        hang = "after training.step_timeout_minutes, or a container's heartbeat.silence_seconds, the job restarts"
        return Finding(Cause.SILENT, what, at, (f"last {job.progress}",), (advice, hang))
    if at:
        return Finding(Cause.RUNNING, f"The job runs: {job.progress}, {duration(training.seconds_left())} left.", None)
    # The 5 minutes are from https://cloud.google.com/tpu/docs/troubleshooting/trouble-tf.
    what = f"All hosts run: {job.progress}. " if job.progress else "All hosts run. "
    what += "Restoring and compiling take 5 minutes or more for a large model."
    return Finding(Cause.RUNNING, what, max((pod.started or 0.0 for pod in job.pods), default=None))


def _end(snapshot: Snapshot, job: JobStatus, end: HostEnd, which: str = "") -> Finding:
    if end.refused_by:
        what = f"{which}{end.words(job.kind)} before its program ran."
        return Finding(
            Cause.RESTARTED, what, end.at, end.evidence, (_TRIES_AGAIN, _elsewhere(snapshot, end.refused_by))
        )
    meant = meaning(ExitCode.PEER_LOST if end.code is None else end.code, job.kind, recorded=end.recorded)
    what = f"{which}{end.words(job.kind)}" + ("." if end.code is None else f": {meant.what}.")
    return Finding(Cause.RESTARTED, what, end.at, end.evidence, advise(meant, snapshot, job, previous=bool(which)))


def _said(job: JobStatus) -> Iterator[str]:
    for event in job.events:
        if event.kind in ("JobSet", "Job"):
            yield f"{event.kind} {event.name}: {event.reason}: {event.message}"
    for each in job.slice_jobs:
        yield from (f"Job {each.name}: {said.message}" for said in each.conditions if said.kind == "Failed")
