"""Why hosts of an admitted job do not run: no node, a lost node, a container that does not start."""

from collections.abc import Iterable, Iterator

from cli.explain.finding import Cause, Finding, counted
from cli.observed.pod import Pod
from cli.observed.snapshot import Job, Snapshot
from workloads.spec import BAD_HOST_KEY

_REFUSED = ("JobCreationFailed", "FailedCreate")
"""Reasons of events that tell of Jobs and pods which the API server does not take."""
_FOLLOWERS_WAIT = "follower pod"
"""JobSet refuses the other hosts of a slice until its first one has a node; that is no fault."""


def findings(snapshot: Snapshot, job: Job) -> Iterator[Finding]:
    """About a job that Kueue has admitted and that has not ended."""
    doctor = f"multislice doctor {snapshot.options}"
    yield from _refused(job)
    yield from _without_node(snapshot, job, doctor)
    yield from _on_lost_nodes(snapshot, job, doctor)
    yield from _not_started(job)


def _refused(job: Job) -> Iterator[Finding]:
    told = [event for event in job.events if event.reason in _REFUSED and _FOLLOWERS_WAIT not in event.message]
    missing = job.hosts + job.heads - len(job.pods)
    if told and missing > 0:
        what = f"The API server refuses {counted(missing, 'host')} of the job."
        messages = tuple(dict.fromkeys(f"{event.kind} {event.name}: {event.message}" for event in told[:3]))
        advice = "repair what it names in the stack file, then `pulumi up`"
        yield Finding(Cause.CREATION_REFUSED, what, told[-1].at, messages, (advice,))


def _without_node(snapshot: Snapshot, job: Job, doctor: str) -> Iterator[Finding]:
    waiting = [pod for pod in job.pods if pod.waits_for and not pod.node]
    if not waiting:
        return
    marked = [node for node in snapshot.nodes if node.bad_host]
    away = [node for node in snapshot.nodes if not node.ready]
    evidence = [f"{_names(pods)}: {message}" for message, pods in _by_message(waiting).items()]
    evidence += [f"{node.name} is marked as one with a bad host: {node.bad_host}" for node in marked]
    evidence += [f"{node.name} is not ready: {node.not_ready}" for node in away]
    what = f"{counted(len(waiting), 'host')} of the job {'has' if len(waiting) == 1 else 'have'} no node"
    if marked:
        back = f"take a node back when it is sound: kubectl taint nodes {marked[0].name} {BAD_HOST_KEY}-"
        since = min(pod.created for pod in waiting)
        yield Finding(Cause.BAD_HOST, f"{what}: those left are of a bad slice.", since, tuple(evidence), (doctor, back))
        return
    move = f"if Google has no chips there, change slices.NAME.zone: pulumi up --stack {snapshot.stack}"
    yield Finding(Cause.NO_NODE, f"{what}.", min(pod.created for pod in waiting), tuple(evidence), (doctor, move))


def _on_lost_nodes(snapshot: Snapshot, job: Job, doctor: str) -> Iterator[Finding]:
    for pod in job.pods:
        node = snapshot.node(pod.node)
        if pod.phase not in ("Running", "Terminating") or (node and node.ready):
            continue
        if node is None and (pod.is_head or not snapshot.nodes):
            continue  # Nodes of slices alone are read; or not even these could be.
        said = f"it is not ready: {node.not_ready}" if node else "it is no longer there"
        what = f"Host {pod.host} is on node {pod.node}, which does not answer."
        advice = "nothing is to be done: its pod is given up after some minutes, and the job restarts"
        since = node.since if node else None
        yield Finding(Cause.NODE_LOST, what, since, (f"{pod.node}: {said}",), (advice, doctor))


def _not_started(job: Job) -> Iterator[Finding]:
    held = [pod for pod in job.pods if pod.held_up]
    if not held:
        return
    what = f"{counted(len(held), 'host')} cannot start the container: {held[0].held_up.partition(':')[0]}."
    advice = "repair the image or what the pod refers to, then `pulumi up`"
    evidence = tuple(f"{pod.host}: {pod.held_up}" for pod in held[:3])
    yield Finding(Cause.NOT_STARTED, what, min(pod.created for pod in held), evidence, (advice,))


def _by_message(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    said: dict[str, list[Pod]] = {}
    for pod in pods:
        said.setdefault(pod.waits_for, []).append(pod)
    return said


def _names(pods: Iterable[Pod]) -> str:
    return ", ".join(pod.host for pod in pods)
