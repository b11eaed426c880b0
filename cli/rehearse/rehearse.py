"""`multislice rehearse` says whether the Kueue of any cluster would admit a JobSet now. It changes nothing.

It needs a kubeconfig, but no stack of this project.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.text import Text

from cli.answer import NEGATIVE, Halt, as_json, waiting
from cli.rehearse import limits
from cli.rehearse.submission import JobFile, Submission, read, submit
from cli.rehearse.submission import errors as errors_of
from infra.cluster import kueue_objects
from infra.cluster.kubernetes import UNREACHABLE, ApiServer, CredentialsError
from infra.cluster.kueue_objects import KueueObjects, NoKueueError, Price, price
from infra.review.admission import manifests
from infra.review.admission.rehearsal import Outcome, Verdict, rehearse
from infra.review.admission.situation import Workload
from infra.stack.cost import per_hour
from workloads.spec.base import Spec


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
    def starts(self) -> bool:
        """Return whether it would be admitted, if need be after preemption."""
        return self.outcome in ("admitted", "preempts") and bool(self.simulated and self.simulated.admitted_in_the_end)

    @property
    def verdict(self) -> str:
        """Return the outcome in a few words."""
        found = self.simulated
        flavors = ", ".join(dict.fromkeys(found.flavors)) if found else ""
        match self.outcome:
            case "admitted":
                return f"would be admitted at once, on flavor {flavors}"
            case "preempts" if found and self.starts:
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
        raise no_answer(error) from None
    file = read(path, namespace, default)
    try:
        with waiting("reading the queues"):
            objects = kueue_objects.read(api, file.namespace)
    except (*UNREACHABLE, NoKueueError) as error:
        if file.errors:
            file.refuse(())
        raise no_answer(error) from None
    found = rehearse_file(file, objects)
    if json:
        console.out(as_json({"jobs": found, "left_out": file.left_out}))
    else:
        _print(found, file, console)
    return 0 if all(each.starts for each in found) else NEGATIVE


def no_answer(error: Exception) -> Halt:
    """Return the error of a cluster whose queues cannot be read."""
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
    errors = [error for job in file.jobs for error in errors_of(job, objects)]
    if errors or file.errors:
        file.refuse(errors)
    if not objects.has_jobsets and any(job.kind == "JobSet" for job in file.jobs):
        raise Halt("expected a cluster with JobSet, got one without its API; install JobSet")
    found: list[Rehearsal] = []
    before: list[Workload] = []
    for job in file.jobs:
        submission = submit(job, objects, before)
        found.append(_rehearsal(submission))
        if found[-1].simulated:
            before.append(submission.workload)
    return found


def _rehearsal(submission: Submission) -> Rehearsal:
    blocked, held = [*limits.blocks(submission)], [*limits.holds(submission)]
    if blocked or held:
        return _answer(submission, "never" if blocked else "waits", [*blocked, *held], None, [])
    verdicts = [
        rehearse(submission.situation.model_copy(update={"fair_sharing": fair}), submission.workload)
        for fair in fair_sharing(submission.objects)
    ]
    verdict = verdicts[0]
    gaps = [*limits.gaps(submission), *limits.of_verdict(submission, verdict)]
    if len({(each.outcome, each.flavors, each.preempted) for each in verdicts}) > 1:
        other = verdicts[1].answer
        gaps.append(limits.Gap(f"Kueue's fair sharing is not known, and with it, it would be: {other}", limits.NOTHING))
    decisive = [gap.text for gap in limits.decisive(gaps, verdict.outcome)]
    notes = [gap.text for gap in gaps if gap.text not in decisive]
    if decisive:
        return _answer(submission, "unknown", decisive, verdict, notes)
    return _answer(submission, verdict.outcome, _reasons(verdict), verdict, notes)


def fair_sharing(objects: KueueObjects) -> tuple[bool, ...]:
    """Return whether Kueue shares fairly; both answers if its configuration cannot be read."""
    if objects.configuration is None:
        return (False, True)
    fair = objects.configuration.get("fairSharing")
    return (fair is not None and fair.get("enable", True),)


def _reasons(verdict: Verdict) -> list[str]:
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
    offered = {name for name, _ in manifests.quotas(submission.queue)}
    choices = [sorted(offered & (pods.flavors or frozenset())) for pods in workload.pod_sets]
    flavors = verdict.flavors if verdict else ()
    if not flavors and all(len(each) == 1 for each in choices):
        flavors = tuple(each[0] for each in choices)
    pods, lists = submission.job.pods, objects.lists
    placed = [
        (each.chips, flavor, pods[each.name]["spec"].get("nodeSelector", {}))
        for each, flavor in zip(workload.pod_sets, flavors, strict=False)
    ]
    return price(placed, lists["resourceflavors"], lists["nodes"], objects.refused.get("nodes"))
