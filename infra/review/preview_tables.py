"""A whole preview as tables: what is lost, what is refused, price, queue and chips, what changes.

Owns the order and the words. How tables look is the business of `infra.review.table`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from infra.review.previewed import Change, Finding, Previewed
from infra.review.table import State, Table
from infra.review.tables import tables

_LOSSES = ("delete", "replace")


def preview_tables(previewed: Previewed) -> list[Table]:
    """What a reviewer needs, the worst first."""
    reviewed = tables(previewed.review) if previewed.review else ()
    return [
        _verdict(previewed),
        *_losses(previewed.changes),
        *_errors(previewed.errors),
        *_rules(previewed),
        *reviewed,
        *_changes(previewed),
    ]


def _verdict(previewed: Previewed) -> Table:
    refused = _count(previewed.findings, "mandatory")
    told, state = _answer(previewed, refused)
    return Table(
        title=f"Preview of {previewed.stack}",
        verdict=told,
        state=state,
        columns=(),
        rows=(),
        notes=[f"{_summary(previewed)}; {previewed.seconds:.0f} s."],
    )


def _answer(previewed: Previewed, refused: int) -> tuple[str, State]:
    if previewed.errors or previewed.review is None:
        return "REFUSED: the engine cannot carry this plan out", "bad"
    if refused:
        return f"REFUSED: {_number(refused, 'mandatory rule')} broken", "bad"
    if not previewed.passes:
        return "DOES NOT GO: the plan is legal, but one of its jobs cannot run", "bad"
    if previewed.review.refused:
        return "the plan passes, but `up` refuses the stack: read Ready", "notable"
    if any(change.operation in _LOSSES for change in previewed.changes):
        return "passes, and takes resources away: read the next table", "notable"
    return "passes", "good"


def _summary(previewed: Previewed) -> str:
    counts = Counter(change.operation for change in previewed.changes)
    told = [f"{count} to {operation}" for operation, count in sorted(counts.items())]
    if not previewed.errors:
        return ", ".join([*told, f"{previewed.unchanged} unchanged"])
    return f"not all known; before the engine stopped: {', '.join(told)}" if told else "not known: the engine stopped"


def _losses(changes: Sequence[Change]) -> Iterable[Table]:
    lost = sorted(
        (change for change in changes if change.operation in _LOSSES),
        key=lambda change: (change.operation, change.type, change.name),
    )
    if lost:
        counts = Counter(change.operation for change in lost)
        told = " and ".join(f"{count} {operation.upper()}D" for operation, count in sorted(counts.items()))
        yield Table(
            title="Taken away",
            verdict=told,
            state="bad",
            columns=("operation", "resource", "name", "inputs that differ"),
            rows=[(change.operation.upper(), _kind(change.type), change.name, _cause(change)) for change in lost],
            notes=(),
        )


def _cause(change: Change) -> str:
    if change.properties or change.operation == "delete":
        return ", ".join(change.properties)
    return "none: goes with what it depends on"


def _errors(errors: Sequence[str]) -> Iterable[Table]:
    if errors:
        yield Table(
            title="Errors",
            verdict=f"{_number(len(errors), 'error')} of the engine",
            state="bad",
            columns=(),
            rows=(),
            notes=errors,
        )


def _rules(previewed: Previewed) -> Iterable[Table]:
    findings = previewed.findings
    mandatory, advisory = _count(findings, "mandatory"), _count(findings, "advisory")
    if previewed.errors and not findings:
        yield Table("Rules", "not checked: the engine stopped before", "notable", (), (), ())
        return
    if not findings:
        yield Table("Rules", "every rule is kept", "good", (), (), ())
        return
    yield Table(
        title="Rules",
        verdict=f"{_number(mandatory, 'mandatory rule')} and {_number(advisory, 'advisory rule')} broken",
        state="bad" if mandatory else "notable",
        columns=("rule", "level", "severity", "resource", "what is wrong"),
        rows=[
            (found.rule, found.level, found.severity, found.resource or "the stack", found.message)
            for found in findings
        ],
        notes=(),
    )


def _changes(previewed: Previewed) -> Iterable[Table]:
    grouped: dict[tuple[str, str], list[str]] = defaultdict(list)
    for change in previewed.changes:
        grouped[change.operation, _kind(change.type)].append(_named(change))
    yield Table(
        title="Changes",
        verdict=_summary(previewed),
        state="notable" if previewed.errors else "good",
        columns=("operation", "resource", "count", "names"),
        rows=[
            (operation, kind, str(len(names)), ", ".join(sorted(names)))
            for (operation, kind), names in sorted(grouped.items())
        ],
        notes=(),
        whole=(0, 1),
        folded=True,
    )


def _named(change: Change) -> str:
    differs = f" ({', '.join(change.properties)})" if change.operation == "update" and change.properties else ""
    return f"{change.name}{differs}"


def _kind(token: str) -> str:
    """`gcp:container/nodePool:NodePool` as `gcp NodePool`, `pulumi:providers:gcp` as `provider gcp`."""
    package, _, rest = token.partition(":")
    module, _, kind = rest.rpartition(":")
    return f"{'provider' if module == 'providers' else package} {kind}"


def _count(findings: Iterable[Finding], level: str) -> int:
    return len({found.rule for found in findings if found.level == level})


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
