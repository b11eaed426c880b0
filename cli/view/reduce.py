"""What each event changes: pure functions from a snapshot and one event to the next snapshot.

Events are objects of the Kubernetes API as plain dicts, events of the Pulumi engine, and lines of
the leader's log. Where they come from is `cli.watch`'s affair.
"""

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from cli.observed.objects import Object, condition, is_true, moment
from cli.observed.outcome import DELETED, outcome_of
from cli.observed.pod import Pod, key_of, pod_of
from cli.observed.training import Training
from cli.view.snapshot import Phase, Resources, Snapshot
from infra.names import team_of
from workloads.progress import CheckpointSaved, Evaluation, RolledBack, RunStarted, RunSummary, StepProgress

if TYPE_CHECKING:
    from pulumi.automation import EngineEvent
    from pulumi.automation.events import StepEventMetadata

_BOOKKEEPING = ("pulumi:pulumi:Stack", "pulumi:providers:")
_IN_CHART = "kubernetes:helm.sh/v4:Chart$"
_UNCHANGED = ("same", "read", "refresh")
_COLOR = re.compile(r"<\{%.*?%\}>")


def jobset(snapshot: Snapshot, found: Object, at: float, deleted: bool) -> Snapshot:
    """The JobSet was seen: size, restarts and, in the end, the outcome."""
    if deleted:
        return replace(snapshot, outcome=DELETED)
    jobs = found["spec"]["replicatedJobs"]
    status = found.get("status", {})
    pod_count = sum(job["replicas"] * job["template"]["spec"]["parallelism"] for job in jobs)
    snapshot = replace(snapshot, pod_count=pod_count, restarts=status.get("restarts", 0))
    outcome = outcome_of(found)
    if outcome is None:
        return _all_running(snapshot, at)
    ended = moment(condition(found, outcome.state), "lastTransitionTime", at)
    return _finish(replace(snapshot, outcome=outcome), ended, outcome.state == "Failed")


def _finish(snapshot: Snapshot, at: float, failed: bool) -> Snapshot:
    """Close what the watchers opened; on a finished JobSet the pods may be gone already."""
    for phase in (Phase.QUEUE, Phase.PODS, Phase.TRAINING):
        snapshot = snapshot.begin(phase, at).end(phase, at, failed=failed and phase is Phase.TRAINING)
    return snapshot


def workload(snapshot: Snapshot, found: Object, at: float, deleted: bool) -> Snapshot:
    """A Workload of the namespace was seen: ours gives the queue phase, the others our position."""
    if team_of(found["spec"].get("queueName", "")) != snapshot.queue:
        return snapshot
    name = found["metadata"]["name"]
    waiting = {other: order for other, order in snapshot.waiting.items() if other != name}
    if not deleted and not is_true(found, "QuotaReserved") and not is_true(found, "Finished"):
        waiting[name] = (-found["spec"].get("priority", 0), moment(found["metadata"], "creationTimestamp", at))
    snapshot = replace(snapshot, waiting=waiting)
    owners = [owner["name"] for owner in found["metadata"].get("ownerReferences", [])]
    return _admission(snapshot, found, at) if snapshot.job in owners and not deleted else snapshot


def _admission(snapshot: Snapshot, found: Object, at: float) -> Snapshot:
    snapshot = snapshot.begin(Phase.QUEUE, moment(found["metadata"], "creationTimestamp", at))
    if is_true(found, "Admitted"):
        admitted = moment(condition(found, "Admitted"), "lastTransitionTime", at)
        queue = found["status"]["admission"]["clusterQueue"]
        snapshot = snapshot.end(Phase.QUEUE, admitted).tell(Phase.QUEUE, f"admitted by {queue}")
        return _all_running(snapshot.begin(Phase.PODS, admitted), at)
    if is_true(found, "Evicted"):
        return snapshot.tell(Phase.QUEUE, f"evicted\n{condition(found, 'Evicted').get('message', '')}")
    order = sorted(snapshot.waiting, key=lambda name: snapshot.waiting[name])
    position = order.index(found["metadata"]["name"]) + 1 if found["metadata"]["name"] in order else 1
    reason = condition(found, "QuotaReserved").get("message", "waits for Kueue")
    return snapshot.tell(Phase.QUEUE, f"position {position} in {snapshot.queue}\n{reason}")


def pod(snapshot: Snapshot, found: Object, at: float, deleted: bool) -> Snapshot:
    """A pod of the JobSet was seen."""
    key = key_of(found)
    seen, known = pod_of(found, at), snapshot.pods.get(key)
    if known and (known.attempt, known.created) > (seen.attempt, seen.created):
        return snapshot
    pods = dict(sorted({**snapshot.pods, key: seen}.items()))
    if deleted:
        pods.pop(key)
    snapshot = replace(snapshot, pods=pods)
    # A pod that is being deleted was ended by a restart or by preemption; it is no cause.
    return _all_running(snapshot if "deletionTimestamp" in found["metadata"] else _failure(snapshot, seen), at)


def _failure(snapshot: Snapshot, seen: Pod) -> Snapshot:
    if seen.phase != "Failed":
        return snapshot
    others = (pod for pod in snapshot.failed if pod.uid != seen.uid)
    return replace(snapshot, failed=(*others, seen))


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
