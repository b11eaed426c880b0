"""What each event changes: pure functions from a snapshot and one event to the next snapshot.

Events are objects of the Kubernetes API as plain dicts, events of the Pulumi engine, and lines of
the leader's log. Where they come from is `cli.watch`'s affair.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cli.view.snapshot import HostFailure, Outcome, Phase, Pod, PodKey, Resources, Snapshot, Training
from workloads.progress import CheckpointSaved, Evaluation, RolledBack, RunStarted, RunSummary, StepProgress

if TYPE_CHECKING:
    from pulumi.automation import EngineEvent
    from pulumi.automation.events import StepEventMetadata

Object = Mapping[str, Any]
"""An object of the Kubernetes API, as JSON."""

_JOB_INDEX = "jobset.sigs.k8s.io/job-index"
_REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
_ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"
_HOST_INDEX = "batch.kubernetes.io/job-completion-index"

_BOOKKEEPING = ("pulumi:pulumi:Stack", "pulumi:providers:")
_IN_CHART = "kubernetes:helm.sh/v4:Chart$"
_UNCHANGED = ("same", "read", "refresh")
_COLOR = re.compile(r"<\{%.*?%\}>")


def jobset(snapshot: Snapshot, found: Object, at: float, deleted: bool) -> Snapshot:
    """The JobSet was seen: size, restarts and, in the end, the outcome."""
    if deleted:
        return replace(snapshot, outcome=Outcome("Failed", "Deleted", "the JobSet was deleted while it was watched"))
    jobs = found["spec"]["replicatedJobs"]
    status = found.get("status", {})
    pod_count = sum(job["replicas"] * job["template"]["spec"]["parallelism"] for job in jobs)
    snapshot = replace(snapshot, pod_count=pod_count, restarts=status.get("restarts", 0))
    state = status.get("terminalState")
    if not state:
        return _all_running(snapshot, at)
    condition = _condition(found, state)
    outcome = Outcome(state, condition.get("reason", ""), condition.get("message", ""))
    return _finish(replace(snapshot, outcome=outcome), _time(condition, "lastTransitionTime", at), state == "Failed")


def _finish(snapshot: Snapshot, at: float, failed: bool) -> Snapshot:
    """Close what the watchers opened; on a finished JobSet the pods may be gone already."""
    for phase in (Phase.QUEUE, Phase.PODS, Phase.TRAINING):
        snapshot = snapshot.begin(phase, at).end(phase, at, failed=failed and phase is Phase.TRAINING)
    return snapshot


def workload(snapshot: Snapshot, found: Object, at: float, deleted: bool) -> Snapshot:
    """A Workload of the namespace was seen: ours gives the queue phase, the others our position."""
    if found["spec"].get("queueName") != snapshot.queue:
        return snapshot
    name = found["metadata"]["name"]
    waiting = {other: order for other, order in snapshot.waiting.items() if other != name}
    if not deleted and not _is_true(found, "QuotaReserved") and not _is_true(found, "Finished"):
        waiting[name] = (-found["spec"].get("priority", 0), _time(found["metadata"], "creationTimestamp", at))
    snapshot = replace(snapshot, waiting=waiting)
    owners = [owner["name"] for owner in found["metadata"].get("ownerReferences", [])]
    return _admission(snapshot, found, at) if snapshot.job in owners and not deleted else snapshot


def _admission(snapshot: Snapshot, found: Object, at: float) -> Snapshot:
    snapshot = snapshot.begin(Phase.QUEUE, _time(found["metadata"], "creationTimestamp", at))
    if _is_true(found, "Admitted"):
        admitted = _time(_condition(found, "Admitted"), "lastTransitionTime", at)
        queue = found["status"]["admission"]["clusterQueue"]
        snapshot = snapshot.end(Phase.QUEUE, admitted).tell(Phase.QUEUE, f"admitted by {queue}")
        return _all_running(snapshot.begin(Phase.PODS, admitted), at)
    if _is_true(found, "Evicted"):
        return snapshot.tell(Phase.QUEUE, f"evicted\n{_condition(found, 'Evicted').get('message', '')}")
    order = sorted(snapshot.waiting, key=lambda name: snapshot.waiting[name])
    position = order.index(found["metadata"]["name"]) + 1 if found["metadata"]["name"] in order else 1
    reason = _condition(found, "QuotaReserved").get("message", "waits for Kueue")
    return snapshot.tell(Phase.QUEUE, f"position {position} in {snapshot.queue}\n{reason}")


def pod(snapshot: Snapshot, found: Object, at: float, deleted: bool) -> Snapshot:
    """A pod of the JobSet was seen."""
    labels = found["metadata"]["labels"]
    key: PodKey = (int(labels[_JOB_INDEX]), int(labels[_HOST_INDEX]))
    seen, known = _pod(found, at), snapshot.pods.get(key)
    if known and (known.attempt, known.created) > (seen.attempt, seen.created):
        return snapshot
    pods = dict(sorted({**snapshot.pods, key: seen}.items()))
    if deleted:
        pods.pop(key)
    snapshot = replace(snapshot, pods=pods)
    # A pod that is being deleted was ended by a restart or by preemption; it is no cause.
    return _all_running(snapshot if "deletionTimestamp" in found["metadata"] else _failure(snapshot, seen), at)


def _pod(found: Object, at: float) -> Pod:
    metadata, status = found["metadata"], found.get("status", {})
    labels = metadata["labels"]
    states = [container["state"] for container in status.get("containerStatuses", [])]
    ended = [state["terminated"]["exitCode"] for state in states if "terminated" in state]
    phase = status.get("phase", "Pending")
    leaving = "deletionTimestamp" in metadata and phase not in ("Failed", "Succeeded")
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        host=f"{labels[_REPLICATED_JOB]}-{labels[_JOB_INDEX]}-{labels[_HOST_INDEX]}",
        phase="Terminating" if leaving else phase,
        node=found["spec"].get("nodeName", ""),
        attempt=int(labels[_ATTEMPT]),
        created=_time(metadata, "creationTimestamp", at),
        started=_time(status, "startTime", at) if "startTime" in status else None,
        exit_code=max(ended, default=None),
        waits_for=_condition(found, "PodScheduled").get("message", ""),
    )


def _failure(snapshot: Snapshot, seen: Pod) -> Snapshot:
    known = {failure.attempt for failure in snapshot.failures}
    if seen.phase != "Failed" or seen.attempt in known:
        return snapshot
    return replace(snapshot, failures=(*snapshot.failures, HostFailure(seen.attempt, seen)))


def _all_running(snapshot: Snapshot, at: float) -> Snapshot:
    """End the pods phase if it is time; asked after each event, since they come in any order."""
    up = [pod for pod in snapshot.pods.values() if pod.started and pod.phase in ("Running", "Succeeded", "Failed")]
    span = snapshot.spans.get(Phase.PODS)
    if span is None or span.ended is not None or not snapshot.pod_count:
        return snapshot
    snapshot = snapshot.tell(Phase.PODS, f"{len(up)} of {snapshot.pod_count} started")
    if len(up) < snapshot.pod_count:
        return snapshot
    # After a restart the first start is no longer known; the pods of today would count as hours of waiting.
    ready = max(pod.started or at for pod in up) if all(pod.attempt == 0 for pod in up) else span.started
    return snapshot.end(Phase.PODS, ready).begin(Phase.TRAINING, ready)


def log_line(snapshot: Snapshot, line: str) -> Snapshot:
    """The leader printed a line; lines that are no progress change nothing."""
    training = snapshot.training
    if run := RunStarted.parse(line):
        training = _run_started(training, run)
    elif rollback := RolledBack.parse(line):
        training = replace(training, step=rollback.step, losses=_up_to(rollback.step, training))
    elif step := StepProgress.parse(line):
        losses = (*training.losses, (step.step, step.loss))
        training = replace(training, **vars(step), losses=losses)
    elif evaluation := Evaluation.parse(line):
        training = replace(training, held_out_loss=evaluation.loss)
    elif saved := CheckpointSaved.parse(line):
        training = replace(training, checkpoint_step=saved.step)
    elif summary := RunSummary.parse(line):
        training = replace(training, held_out_loss=summary.evaluation_loss)
    return replace(snapshot, training=training)


def _run_started(training: Training, run: RunStarted) -> Training:
    """A resumed run does the steps after its checkpoint again; their losses come again as well."""
    outcome = f"resumed at step {run.step}" if run.outcome == "resumed" else run.outcome
    losses = _up_to(run.step, training)
    return replace(training, run=outcome, run_id=run.run, step=run.step, steps=run.steps, losses=losses)


def _up_to(last: int, training: Training) -> tuple[tuple[int, float], ...]:
    return tuple((step, loss) for step, loss in training.losses if step <= last)


def engine(snapshot: Snapshot, phase: Phase, event: "EngineEvent") -> Snapshot:
    """The Pulumi engine reported; `phase` is the plan, the update or the destroy that runs."""
    resources = snapshot.resources
    if event.resource_pre_event:
        resources = _step_begun(resources, event.resource_pre_event.metadata)
    elif event.res_outputs_event:
        resources = _step_done(resources, event.res_outputs_event.metadata)
    elif event.diagnostic_event and event.diagnostic_event.severity == "error":
        resources = _fault(resources, event.diagnostic_event.message)
    elif event.policy_event and event.policy_event.enforcement_level == "mandatory":
        resources = _fault(resources, f"{event.policy_event.policy_name}: {event.policy_event.message}")
    return replace(snapshot, resources=resources).tell(phase, _resources_line(resources))


def engine_done(snapshot: Snapshot, phase: Phase) -> Snapshot:
    """The engine's operation is over; what a plan saw is the total of the update that follows."""
    resources = snapshot.resources
    count = len(resources.done.union(resources.active))
    changes = "to change" if phase is Phase.PLAN else "changed"
    snapshot = snapshot.tell(phase, f"{count} resources, {len(resources.changed)} {changes}")
    return replace(snapshot, resources=Resources(total=count))


def _step_begun(resources: Resources, step: "StepEventMetadata") -> Resources:
    if not _counts(step) or step.urn in resources.active:
        return resources
    return replace(resources, active=(*resources.active, step.urn))


def _step_done(resources: Resources, step: "StepEventMetadata") -> Resources:
    if not _counts(step):
        return resources
    active = tuple(urn for urn in resources.active if urn != step.urn)
    changed = resources.changed if step.op.value in _UNCHANGED else resources.changed | {step.urn}
    return replace(resources, active=active, done=resources.done | {step.urn}, changed=changed)


def _counts(step: "StepEventMetadata") -> bool:
    """A chart counts as one: before its cluster is there, the plan cannot know what it holds."""
    return not step.type.startswith(_BOOKKEEPING) and _IN_CHART not in step.urn


def _fault(resources: Resources, message: str) -> Resources:
    return replace(resources, errors=(*resources.errors, _COLOR.sub("", message).strip()))


def _resources_line(resources: Resources) -> str:
    count = f"{len(resources.done)} of {resources.total}" if resources.total else str(len(resources.done))
    return f"{count}: {label(resources.active[-1])}" if resources.active else f"{count} resources"


def label(urn: str) -> str:
    """`urn:...::a$kubernetes:helm.sh/v4:Chart::kueue` as `Chart kueue`."""
    *_, types, name = urn.split("::")
    kind = types.split("$")[-1].split(":")[-1]
    return f"{kind} {name}"


def _condition(found: Object, kind: str) -> Mapping[str, str]:
    conditions: list[dict[str, str]] = found.get("status", {}).get("conditions", [])
    return {condition["type"]: condition for condition in conditions}.get(kind, dict[str, str]())


def _is_true(found: Object, kind: str) -> bool:
    return _condition(found, kind).get("status") == "True"


def _time(holder: Mapping[str, Any], key: str, otherwise: float) -> float:
    return datetime.fromisoformat(holder[key]).timestamp() if key in holder else otherwise
