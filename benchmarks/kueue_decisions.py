"""Compares decisions of real Kueue with simulations, and keeps them in a file.

The first line of the file has the version of Kueue and the names of the fields. Each following line is a decision.
Objects are written as lists of their fields.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.kueue_situations import NAMESPACE
from infra.admission.rehearsal import Verdict, rehearse
from infra.admission.situation import Admission, FlavorQuota, PodSet, Queue, Situation, Workload
from sandbox.programs import PROGRAMS, version_of
from workloads.spec.base import Spec

RECORD = Path(__file__).parent.parent / "tests" / "infra" / "admission" / "decisions.jsonl"
"""File of the decisions that the tests replay."""
RECORD_AGAIN = "record again with: python -m benchmarks.admission --record"

_WRITTEN: tuple[type[Spec], ...] = (Situation, Queue, FlavorQuota, Workload, PodSet, Admission)
_PARTS: dict[tuple[type[Spec], str], type[Spec]] = {
    (Situation, "queues"): Queue,
    (Situation, "workloads"): Workload,
    (Queue, "flavors"): FlavorQuota,
    (Workload, "pod_sets"): PodSet,
    (Workload, "admission"): Admission,
}


class StaleRecord(ValueError):
    """Raised when decisions were recorded by a program with other fields."""


@dataclass(frozen=True)
class Seen:
    """Result of a newcomer in Kueue."""

    outcome: str
    """`admitted`, `preempts`, `waits`, `never`, `restless` if Kueue reached no stable state, or `unsaid` if Kueue's
    message does not distinguish `waits` and `never`."""
    flavors: tuple[str, ...]
    """Final flavors of the newcomer."""
    preempted: frozenset[tuple[str, str]]
    """Names of the workloads that were preempted first, with the reasons."""


@dataclass(frozen=True)
class Decision:
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
        words = f"{sharing(self.situation.fair_sharing)}: {'; '.join(self.verdict.lines)}"
        return f"trial {self.name}, {words}. Kueue: {self.seen}"

    @property
    def agrees(self) -> bool:
        """Whether Kueue's first decision was that of the simulation."""
        rehearsed = frozenset((target.workload, target.reason) for target in self.verdict.preempted)
        if self.seen.outcome == "restless":
            return self.verdict.restless
        outcomes = ("waits", "never") if self.seen.outcome == "unsaid" else (self.seen.outcome,)
        same = self.verdict.outcome in outcomes and rehearsed == self.seen.preempted
        return same and (self.verdict.outcome != "admitted" or self.verdict.flavors == self.seen.flavors)

    @property
    def ends_alike(self) -> bool:
        """Whether Kueue and the simulation also agree on whether the newcomer finally runs."""
        return self.verdict.restless or self.verdict.admitted_in_the_end == bool(self.seen.flavors)


def sharing(fair: bool) -> str:
    """Return whether queues share by weight or by right, as a word."""
    return "fair" if fair else "by right"


def kueue() -> str:
    """Return the version of Kueue in the sandbox."""
    (version,) = (version_of(program) for program in PROGRAMS if program.name == "kueue")
    return version


def write(path: Path, kueue: str, decisions: Iterable[Decision]) -> None:
    """Write the decisions of this version of Kueue."""
    head = json.dumps({"kueue": kueue, "fields": _fields()})
    path.write_text("".join(f"{line}\n" for line in (head, *map(_line, decisions))))


def read(path: Path) -> tuple[str, list[Decision]]:
    """Return the version of Kueue that decided, and the decisions.

    Raises:
        StaleRecord: The file was written when situations had other fields.
    """
    head, *lines = map(json.loads, path.read_text().splitlines())
    if head["fields"] != _fields():
        raise StaleRecord(f"{path.name} was written when situations had other fields; {RECORD_AGAIN}")
    return head["kueue"], [_decision(line) for line in lines]


def _fields() -> dict[str, list[str]]:
    return {kind.__name__: list(kind.model_fields) for kind in _WRITTEN}


def _line(decision: Decision) -> str:
    """Return the line of a decision, without values that differ between recordings for no reason."""
    *others, newcomer = _plain([*decision.situation.workloads, decision.newcomer])
    situation = decision.situation.model_copy(update={"workloads": tuple(others)})
    seen = decision.seen
    line = {
        "trial": decision.name,
        "situation": _packed(situation),
        "newcomer": _packed(newcomer),
        "kueue": [seen.outcome, seen.flavors, dict(sorted(seen.preempted))],
    }
    text = json.dumps(line, separators=(",", ":"))
    return text.replace(f"{NAMESPACE}/", "").replace(f"{decision.name}-", "")


def _decision(line: dict[str, Any]) -> Decision:
    outcome, flavors, preempted = line["kueue"]
    return Decision(
        name=line["trial"],
        situation=_unpacked(Situation, line["situation"]),
        newcomer=_unpacked(Workload, line["newcomer"]),
        seen=Seen(outcome, tuple(flavors), frozenset(preempted.items())),
    )


def _packed(value: Any) -> Any:
    if isinstance(value, Spec):
        return [_packed(getattr(value, name)) for name in type(value).model_fields]
    if isinstance(value, tuple):
        return [_packed(each) for each in value]
    if isinstance(value, frozenset):
        return sorted(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _unpacked[Kind: Spec](kind: type[Kind], values: list[Any]) -> Kind:
    fields = dict(zip(kind.model_fields, values, strict=True))
    for (whole, name), part in _PARTS.items():
        if whole is kind and fields[name] is not None:
            fields[name] = (
                _unpacked(part, fields[name])
                if name == "admission"
                else tuple(_unpacked(part, each) for each in fields[name])
            )
    return kind.model_validate(fields)


def _plain(workloads: list[Workload]) -> list[Workload]:
    """Return the workloads with small numbers for UIDs and times, because only their order matters."""
    uids = {uid: f"{place:02}" for place, uid in enumerate(sorted(workload.uid for workload in workloads))}
    reserved = [workload.admission.reserved_at for workload in workloads if workload.admission]
    first = min([*reserved, *(workload.queued_at for workload in workloads)])
    return [
        workload.model_copy(
            update={
                "uid": uids[workload.uid],
                "queued_at": workload.queued_at - first,
                "admission": workload.admission
                and workload.admission.model_copy(update={"reserved_at": workload.admission.reserved_at - first}),
            }
        )
        for workload in workloads
    ]
