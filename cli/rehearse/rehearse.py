"""`multislice rehearse` says whether the Kueue of any cluster would admit a JobSet now. It changes nothing.

It needs a kubeconfig, but no stack of this project.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.text import Text

from cli.answer import NEGATIVE, Halt, as_json, waiting
from cli.rehearse import job_file, limits
from cli.rehearse.job_file import JobFile, Located, SubmittedJob
from cli.rehearse.limits import Submission
from cli.rehearse.price import Price, price
from infra.cluster import kueue_objects
from infra.cluster.kubernetes import UNREACHABLE, ApiServer, CredentialsError
from infra.cluster.kueue_objects import KueueObjects, NoKueueError
from infra.review.admission import live, manifests
from infra.review.admission.rehearsal import Outcome, Verdict, rehearse
from infra.review.admission.situation import Situation, Workload
from infra.stack.cost import per_hour
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
                count = len(found.preempted)
                others = "1 workload" if count == 1 else f"{count} workloads"
                return f"would be admitted on flavor {flavors}, after it preempts {others}"
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
        yield from self.reasons
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
    except CredentialsError as error:
        raise _no_answer(error) from None
    file = job_file.read(path, namespace, default)
    try:
        with waiting("reading the queues"):
            objects = kueue_objects.read(api, file.namespace)
    except (*UNREACHABLE, NoKueueError) as error:
        if file.errors:
            file.refuse(())
        raise _no_answer(error) from None
    found = rehearse_file(file, objects)
    if json:
        console.out(as_json({"jobs": found, "left_out": file.left_out}))
    else:
        _print(found, file, console)
    started = all(each.outcome in ("admitted", "preempts") for each in found)
    return 0 if started else NEGATIVE


def _no_answer(error: Exception) -> Halt:
    if isinstance(error, NoKueueError):
        return Halt(str(error))
    return Halt(f"expected a kubeconfig of a cluster that answers, got: {error}")


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
    if errors or file.errors:
        file.refuse(errors)
    if not objects.has_jobsets and any(job.kind == "JobSet" for job in file.jobs):
        raise Halt("expected a cluster with JobSet, got one without its API; install JobSet")
    found: list[Rehearsal] = []
    before: list[Workload] = []
    for job in file.jobs:
        submission = _submission(job, objects, before)
        found.append(_rehearsal(submission))
        before.append(submission.workload)
    return found


def _errors(job: SubmittedJob, objects: KueueObjects) -> Iterator[Located]:
    """Yield the errors of a job that only the cluster shows."""
    queues, label = _names(objects, "localqueues"), job.labels.get(QUEUE_LABEL)
    if (label or _DEFAULT_QUEUE) not in queues:
        expected = f"a LocalQueue of namespace {objects.namespace} ({', '.join(queues) or 'there are none'})"
        got = repr(label) if label else "no label"
        yield job.error(f"metadata.labels.{QUEUE_LABEL}", expected, got, f"write the label {QUEUE_LABEL}")
    if chosen := _priority_class(job):
        classes = _names(objects, chosen.plural)
        if chosen.plural not in objects.refused and chosen.name not in (*classes, *_SYSTEM_PRIORITIES):
            expected = f"one of the {chosen.plural} {', '.join(classes) or '(there are none)'}"
            yield job.error(chosen.path, expected, repr(chosen.name), "correct it, or create the class")
    if job.name == "*":
        yield job.error("metadata.name", "a name", "nothing", "write metadata.name or metadata.generateName")
    if not any(TPU_RESOURCE in manifests.requests(pods["spec"]) for pods in job.pods.values()):
        yield job.error("spec", f"pods that request {TPU_RESOURCE}", "none", "only jobs on TPUs are simulated")
    for each in objects.lists["workloads"]:
        for owner in each["metadata"].get("ownerReferences", []):
            there = (each["metadata"]["namespace"], owner["kind"], owner["name"])
            if there == (objects.namespace, job.kind, job.name):
                yield job.error("metadata.name", "a new name", repr(job.name), "rename it, or delete the other job")


def _names(objects: KueueObjects, plural: str) -> list[str]:
    """Return the names of the objects of a kind; of a namespaced kind, those of the namespace."""
    found = [each["metadata"] for each in objects.lists[plural]]
    return [each["name"] for each in found if each.get("namespace") in (None, objects.namespace)]


@dataclass(frozen=True)
class _PriorityClass:
    plural: str
    name: str
    path: str
    """Where the manifest names it."""


def _priority_class(job: SubmittedJob) -> _PriorityClass | None:
    """Return the class with the priority of a job; `None` if it names none."""
    if name := job.labels.get(PRIORITY_LABEL):
        return _PriorityClass("workloadpriorityclasses", name, f"metadata.labels.{PRIORITY_LABEL}")
    for pods in job.pods.values():
        if name := pods["spec"].get("priorityClassName"):
            return _PriorityClass("priorityclasses", name, "spec.replicatedJobs")
    return None


def _priority(job: SubmittedJob, objects: KueueObjects) -> int | None:
    """Return the priority of a job. `None` if this user may not read its class."""
    chosen = _priority_class(job)
    listed = objects.lists[chosen.plural if chosen else "priorityclasses"]
    known = {each["metadata"]["name"]: int(each["value"]) for each in listed} | _SYSTEM_PRIORITIES
    if chosen:
        return known.get(chosen.name)
    if "priorityclasses" in objects.refused:
        return None
    return next((int(each["value"]) for each in listed if each.get("globalDefault")), 0)


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
        chosen = _priority_class(submission.job)
        right = submission.objects.refused[chosen.plural if chosen else "priorityclasses"]
        yield limits.Gap(f"its priority is taken for 0, because you may not {right}", limits.FITS)


def _reasons(verdict: Verdict) -> list[str]:
    """Return why a job is not admitted at once."""
    if verdict.outcome == "admitted":
        return []
    held = ", ".join(f"{each.workload} ({sum(each.chips.values())} chips)" for each in verdict.holders[:5])
    ahead = ", ".join(verdict.ahead[:5])
    return [
        *dict.fromkeys(map(str, verdict.shortages)),
        *([f"the chips are held by {held}"] if held else []),
        *([f"ahead of it in the queue: {ahead}"] if ahead else []),
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
