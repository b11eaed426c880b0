"""Compares decisions of real Kueue with simulations, and keeps them in a file.

The first line of the file has the version of Kueue. Each following line is a decision as JSON.
"""

import json
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from pydantic import ValidationError

from benchmarks.kueue_situations import NAMESPACE
from infra.review.admission.rehearsal import Verdict, rehearse
from infra.review.admission.situation import Situation, Workload
from sandbox.programs import PROGRAMS, version_of
from workloads.spec.base import Spec

RECORD = Path(__file__).parent.parent / "tests" / "infra" / "review" / "admission" / "decisions.jsonl"
"""File of the decisions that the tests replay."""
RECORD_AGAIN = "record again with: python -m benchmarks.kueue_trials"


class StaleRecord(ValueError):
    """Raised when decisions were recorded by a program with other fields."""


class Seen(Spec):
    """Result of a newcomer in Kueue."""

    outcome: str
    """`admitted`, `preempts`, `waits`, `never`, `preempts_in_circles` if Kueue reached no stable state, or `unsaid` if
    Kueue's message does not distinguish `waits` and `never`."""
    flavors: tuple[str, ...] = ()
    """Final flavors of the newcomer."""
    preempted: dict[str, str] = {}
    """Names of the workloads that were preempted first, with the reasons."""

    def agrees_with(self, verdict: Verdict) -> bool:
        """Return whether Kueue first decided as simulated, and the newcomer finally runs in both or none."""
        if self.outcome == "preempts_in_circles":
            return verdict.preempts_in_circles
        outcomes = ("waits", "never") if self.outcome == "unsaid" else (self.outcome,)
        same = verdict.outcome in outcomes and self.preempted == {
            target.workload: target.reason for target in verdict.preempted
        }
        placed = verdict.outcome != "admitted" or verdict.flavors == self.flavors
        ends = verdict.preempts_in_circles or verdict.admitted_in_the_end == bool(self.flavors)
        return same and placed and ends


class Decision(Spec):
    """A submitted workload and Kueue's decision about it."""

    name: str
    """Name of the trial."""
    situation: Situation
    """Situation before the newcomer was submitted."""
    newcomer: Workload
    seen: Seen

    @cached_property
    def verdict(self) -> Verdict:
        """Result of the simulation."""
        return rehearse(self.situation, self.newcomer)

    def __str__(self) -> str:
        shared = "fair sharing" if self.situation.fair_sharing else "no fair sharing"
        return f"trial {self.name}, {shared}: {'; '.join(self.verdict.lines)}. Kueue: {self.seen}"

    @property
    def agrees(self) -> bool:
        """Whether the simulation came to the same result."""
        return self.seen.agrees_with(self.verdict)

    def plain(self) -> "Decision":
        """Return the decision with small numbers for UIDs and times, because only their order matters."""
        workloads = [*self.situation.workloads, self.newcomer]
        uids = {uid: f"{place:02}" for place, uid in enumerate(sorted(workload.uid for workload in workloads))}
        reserved = [workload.admission.reserved_at for workload in workloads if workload.admission]
        first = min([*reserved, *(workload.queued_at for workload in workloads)])

        def small(workload: Workload) -> Workload:
            admission = workload.admission
            later = {"reserved_at": admission.reserved_at - first} if admission else {}
            changes = {"uid": uids[workload.uid], "queued_at": workload.queued_at - first}
            return workload.model_copy(
                update={**changes, "admission": admission and admission.model_copy(update=later)}
            )

        *others, newcomer = map(small, workloads)
        situation = self.situation.model_copy(update={"workloads": tuple(others)})
        return self.model_copy(update={"situation": situation, "newcomer": newcomer})


def kueue() -> str:
    """Return the version of Kueue in the sandbox."""
    (version,) = (version_of(program) for program in PROGRAMS if program.name == "kueue")
    return version


def write(path: Path, kueue: str, decisions: Iterable[Decision]) -> None:
    """Write the decisions of this version of Kueue, without values that differ between recordings for no reason."""
    lines = [json.dumps({"kueue": kueue})]
    for decision in decisions:
        line = json.dumps(decision.plain().model_dump(), default=sorted, separators=(",", ":"))
        lines.append(line.replace(f"{NAMESPACE}/", "").replace(f"{decision.name}-", ""))
    path.write_text("".join(f"{line}\n" for line in lines))


def read(path: Path) -> tuple[str, list[Decision]]:
    """Return the version of Kueue that decided, and the decisions.

    Raises:
        StaleRecord: The file was written when situations had other fields.
    """
    head, *lines = path.read_text().splitlines()
    try:
        return json.loads(head)["kueue"], [Decision.model_validate_json(line) for line in lines]
    except ValidationError as error:
        raise StaleRecord(f"{path.name} was written when situations had other fields; {RECORD_AGAIN}") from error


def names(path: Path, *, fair_sharing: bool) -> list[str]:
    """Return the names of the recorded trials with or without fair sharing, also of a stale file."""
    lines = map(json.loads, path.read_text().splitlines()[1:])
    return [line["name"] for line in lines if line["situation"]["fair_sharing"] == fair_sharing]
