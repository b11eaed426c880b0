"""`multislice rehearse` says whether the Kueue of any cluster would admit a JobSet now. It changes nothing.

It needs a kubeconfig, but no stack of this project.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.text import Text

from cli.answer import NEGATIVE, Halt, as_json, waiting
from cli.rehearse import job_file, limits
from cli.rehearse.job_file import JobFile, SubmittedJob
from cli.rehearse.limits import Submission
from cli.rehearse.price import Price, price
from infra.cluster import kueue_objects
from infra.cluster.kubernetes import UNREACHABLE, ApiServer
from infra.cluster.kueue_objects import KueueObjects, NoKueueError
from infra.review.admission import live, manifests
from infra.review.admission.rehearsal import Outcome, Verdict, rehearse
from infra.review.admission.situation import Situation, Workload
from infra.stack.cost import per_hour
from infra.stack.manifests import Object
from infra.stack.names import PRIORITY_LABEL, QUEUE_LABEL, TPU_RESOURCE
from workloads.spec.base import Spec

_DEFAULT_QUEUE = "default"
"""LocalQueue of jobs without a label, if a namespace has it."""
_SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class Rehearsal(Spec):
    """What would happen to a job."""

    job: str
    local_queue: str
    cluster_queue: str
    priority: int
    chips: int
    outcome: Outcome | Literal["unknown"]
    reasons: tuple[str, ...]
    """Why it is not admitted, or why the outcome is unknown."""
    simulated: Verdict | None
    """The decision by quotas of chips. `None` if the job is refused for another reason."""
    position: int | None
    """Position among the waiting workloads of its ClusterQueue. `None` if it does not wait."""
    usd_per_hour: float | None
    price_basis: str
    notes: tuple[str, ...]
    """What the simulation leaves out or assumes, without an effect on the outcome."""

    @property
    def verdict(self) -> str:
        """Return the outcome in a few words."""
        found = self.simulated
        flavors = ", ".join(dict.fromkeys(found.flavors)) if found else ""
        match self.outcome:
            case "admitted":
                return f"would be admitted at once, on flavor {flavors}"
            case "preempts" if found and found.admitted_in_the_end:
                return f"would be admitted on flavor {flavors}, after it preempts {len(found.preempted)} workloads"
            case "waits" if self.position:
                return f"would wait, at position {self.position} of its queue"
            case "never":
                return "would never be admitted"
            case "unknown":
                return "not known whether it would be admitted"
            case _:
                return "would wait"

    @property
    def lines(self) -> Iterator[str]:
        """Yield the explanation, one sentence a line."""
        for reason in self.reasons:
            yield f"because {reason}"
        if self.outcome == "unknown" and self.simulated:
            yield f"by quotas of chips alone: {self.simulated.answer}"
        elif self.simulated and self.outcome == "admitted" and self.simulated.borrowed:
            yield self.simulated.answer
        for each in self.simulated.preempted if self.simulated else ():
            back = "runs again on other chips" if each.runs_again else "waits in its queue until chips are free"
            yield f"preempts {each}, which then {back}"
        yield (
            f"{self.chips} chips at priority {self.priority}, from LocalQueue {self.local_queue} in ClusterQueue"
            f" {self.cluster_queue}"
        )
        known = None if self.usd_per_hour is None else per_hour(self.usd_per_hour)
        yield f"{known}: {self.price_basis}" if known else f"price not known: {self.price_basis}"
        yield from (f"note: {note}" for note in self.notes)


def command(path: Path, chosen: tuple[str | None, str | None, str | None], console: Console, *, json: bool) -> int:
    """Print what would happen to the jobs of a file, one after the other. Return the exit status.

    `chosen` are kubeconfig, context and namespace, each `None` for kubectl's default. Raise Halt with all errors of the
    file, or if the cluster cannot answer.
    """
    kubeconfig, context, namespace = chosen
    try:
        api, default = ApiServer.of_kubeconfig(kubeconfig, context)
        file = job_file.read(path, namespace, default)
        with waiting("reading the queues"):
            objects = kueue_objects.read(api, file.jobs[0].namespace)
    except UNREACHABLE as error:
        raise Halt(f"expected a kubeconfig of a cluster that answers, got: {error}") from None
    except NoKueueError as error:
        raise Halt(str(error)) from None
    found = rehearse_file(file, objects)
    if json:
        console.out(as_json({"jobs": found, "left_out": file.left_out}))
    else:
        _print(found, file, console)
    started = all(each.outcome in ("admitted", "preempts") for each in found)
    return 0 if started else NEGATIVE


def _print(found: Sequence[Rehearsal], file: JobFile, console: Console) -> None:
    for each in found:
        console.print(Text.assemble((each.job, "bold"), f"  {each.verdict}"), soft_wrap=True)
        for line in each.lines:
            console.print(Text(f"  {line}", style="dim"), soft_wrap=True)
    if file.left_out:
        console.print(Text(f"left out: {', '.join(file.left_out)}", style="dim"), soft_wrap=True)


def rehearse_file(file: JobFile, objects: KueueObjects) -> list[Rehearsal]:
    """Return what would happen to the jobs of a file, each after those before it. Raise Halt with all errors."""
    errors = [error for job in file.jobs for error in _errors(job, objects)]
    if errors:
        file.refuse(errors)
    found: list[Rehearsal] = []
    before: list[Workload] = []
    for job in file.jobs:
        submission = _submission(job, objects, before)
        found.append(_rehearsal(submission))
        before.append(submission.workload)
    return found


def _errors(job: SubmittedJob, objects: KueueObjects) -> Iterator[str]:
    """Yield the errors of a job that only the cluster shows."""
    queues = [each["metadata"]["name"] for each in objects.lists["localqueues"] if _is_near(each["metadata"], job)]
    named = job.labels.get(QUEUE_LABEL) or _DEFAULT_QUEUE
    if named not in queues:
        got = repr(job.labels[QUEUE_LABEL]) if job.labels.get(QUEUE_LABEL) else "no label"
        expected = f"a LocalQueue of namespace {job.namespace} ({', '.join(queues) or 'there are none'})"
        yield job.error("queue", expected, got, f"write the label {QUEUE_LABEL}")
    for plural, name, label in _priority_classes(job):
        classes = [each["metadata"]["name"] for each in objects.lists[plural]]
        if plural not in objects.refused and name not in (*classes, *_SYSTEM_PRIORITIES):
            yield job.error("priority", f"one of {', '.join(classes) or 'no classes'}", repr(name), f"change {label}")
    owners = [
        owner["name"]
        for each in objects.lists["workloads"]
        if _is_near(each["metadata"], job)
        for owner in each["metadata"].get("ownerReferences", [])
        if owner["kind"] == job.kind
    ]
    if job.name in owners:
        yield job.error("name", "a new name", repr(job.name), "rename it, or delete the job of this name")
    if job.kind == "JobSet" and not objects.has_jobsets:
        yield job.error("name", "a cluster with JobSet", "one without its API", "install JobSet")
    if not any(manifests.requests(pods["spec"]).get(TPU_RESOURCE) for pods in job.pods.values()):
        yield job.error("name", f"a job that requests {TPU_RESOURCE}", "none", "only jobs on TPUs are simulated")


def _is_near(metadata: Object, job: SubmittedJob) -> bool:
    return metadata["namespace"] == job.namespace


def _priority_classes(job: SubmittedJob) -> list[tuple[str, str, str]]:
    """Return the class that decides about the job's priority: its kind, its name, and where the job names it."""
    if name := job.labels.get(PRIORITY_LABEL):
        return [("workloadpriorityclasses", name, f"the label {PRIORITY_LABEL}")]
    named = [name for pods in job.pods.values() if (name := pods["spec"].get("priorityClassName"))]
    return [("priorityclasses", named[0], "priorityClassName")] if named else []


def _priority(job: SubmittedJob, objects: KueueObjects) -> int | None:
    """Return the priority of a job. `None` if this user may not read its class."""
    for plural, name, _ in _priority_classes(job):
        known = {each["metadata"]["name"]: int(each["value"]) for each in objects.lists[plural]}
        return {**_SYSTEM_PRIORITIES, **known}.get(name)
    defaults = [int(each["value"]) for each in objects.lists["priorityclasses"] if each.get("globalDefault")]
    return defaults[0] if defaults else 0


def _submission(job: SubmittedJob, objects: KueueObjects, before: Sequence[Workload]) -> Submission:
    """Return a job with the queues that it is submitted to. `before` are the jobs of the file before it."""
    local = objects.named("localqueues", job.labels.get(QUEUE_LABEL) or _DEFAULT_QUEUE)
    assert local, "errors of the job have been reported"
    name = local["spec"]["clusterQueue"]
    queue = objects.named("clusterqueues", name)
    if queue is None:
        raise Halt(
            f"expected a ClusterQueue of LocalQueue {local['metadata']['name']}, got {name!r}, which does not exist"
        )
    found = _situation(objects, name, fair_sharing=False)
    return Submission(
        job=job,
        objects=objects,
        local_queue=local,
        queue=queue,
        workload=manifests.jobset_workload(
            job.manifest, name, _priority(job, objects) or 0, objects.lists["resourceflavors"], time.time()
        ),
        situation=found.model_copy(update={"workloads": (*found.workloads, *before)}),
    )


def _situation(objects: KueueObjects, queue: str, *, fair_sharing: bool) -> Situation:
    lists = objects.lists
    return live.situation(
        live.related(lists["clusterqueues"], queue),
        lists["localqueues"],
        lists["resourceflavors"],
        lists["workloads"],
        fair_sharing=fair_sharing,
        others_hidden="workloads" in objects.refused,
    )


def _rehearsal(submission: Submission) -> Rehearsal:
    blocked, held = [*limits.blocks(submission)], [*limits.holds(submission)]
    if blocked or held:
        return _answer(submission, "never" if blocked else "waits", [*blocked, *held], None, [])
    verdicts = [
        rehearse(submission.situation.model_copy(update={"fair_sharing": fair}), submission.workload)
        for fair in _fair_sharing(submission.objects)
    ]
    verdict, gaps = verdicts[0], [*limits.gaps(submission), *_unknown_priority(submission)]
    if len({(each.outcome, each.flavors, each.preempted) for each in verdicts}) > 1:
        other = verdicts[1].answer
        gaps.append(limits.Gap(f"Kueue's fair sharing is not known, and with it, it would be: {other}", limits.NOTHING))
    decisive = [gap.text for gap in limits.decisive(gaps, verdict.outcome)]
    notes = [gap.text for gap in gaps if gap.text not in decisive]
    if decisive:
        return _answer(submission, "unknown", decisive, verdict, notes)
    return _answer(submission, verdict.outcome, _reasons(verdict), verdict, notes)


def _fair_sharing(objects: KueueObjects) -> tuple[bool, ...]:
    """Return whether Kueue shares fairly; both answers if its configuration cannot be read."""
    if objects.configuration is None:
        return (False, True)
    fair = objects.configuration.get("fairSharing")
    return (fair is not None and fair.get("enable", True),)


def _unknown_priority(submission: Submission) -> Iterator[limits.Gap]:
    if _priority(submission.job, submission.objects) is None:
        ((plural, name, _),) = _priority_classes(submission.job)
        right = submission.objects.refused[plural]
        yield limits.Gap(f"its priority is that of class {name}, and you may not {right}; 0 is assumed", limits.FITS)


def _reasons(verdict: Verdict) -> list[str]:
    """Return why a job is not admitted at once."""
    if verdict.outcome == "admitted":
        return []
    held = ", ".join(f"{each.workload} ({sum(each.chips.values())} chips)" for each in verdict.holders[:5])
    ahead = ", ".join(verdict.ahead[:5])
    return [
        *dict.fromkeys(map(str, verdict.shortages)),
        *([f"the chips are held by {held}"] if held else []),
        *([f"{ahead} are ahead of it in the queue"] if ahead else []),
    ]


def _answer(
    submission: Submission,
    outcome: Outcome | Literal["unknown"],
    reasons: Sequence[str],
    verdict: Verdict | None,
    notes: Sequence[str],
) -> Rehearsal:
    workload, cost = submission.workload, _price(submission, verdict)
    return Rehearsal(
        job=workload.name,
        local_queue=submission.local_queue["metadata"]["name"],
        cluster_queue=submission.queue_name,
        priority=workload.priority,
        chips=workload.chips,
        outcome=outcome,
        reasons=tuple(reasons),
        simulated=verdict,
        position=len(verdict.ahead) + 1 if verdict and outcome == "waits" else None,
        usd_per_hour=cost.usd_per_hour,
        price_basis=cost.basis,
        notes=tuple(notes),
    )


def _price(submission: Submission, verdict: Verdict | None) -> Price:
    """Return the price on the flavors that the job gets, or on the only ones that it may use."""
    workload, objects = submission.workload, submission.objects
    offered = {name for name, _ in live.quotas(submission.queue)}
    choices = [sorted(offered & (pods.flavors or frozenset())) for pods in workload.pod_sets]
    flavors = verdict.flavors if verdict else ()
    if not flavors and all(len(each) == 1 for each in choices):
        flavors = tuple(each[0] for each in choices)
    selectors = {name: pods["spec"].get("nodeSelector", {}) for name, pods in submission.job.pods.items()}
    placed = list(zip(workload.pod_sets, flavors, strict=False))
    lists = objects.lists
    return price(placed, selectors, lists["resourceflavors"], lists["nodes"], objects.refused.get("nodes"))
