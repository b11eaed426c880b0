"""Previews as tables and as pull request comments, and drift as tables."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from pydantic import JsonValue

from infra.review.answers import answers, find_obstacles, join_names, tables
from infra.review.review import Change, Finding, Previewed
from infra.review.table import UNKNOWN, Answer, Table, as_markdown
from infra.stack.command_lines import command_line
from workloads.spec import Spec

_LOSSES = ("delete", "replace")


def preview_answers(previewed: Previewed) -> list[Answer]:
    """Return the answers of the review, of which the verdict also counts what the engine and the rules found."""
    (*reviewed, _) = answers(previewed.review) if previewed.review else (None,)
    return [*reviewed, _verdict(previewed)]


def preview_tables(previewed: Previewed, *, verbose: bool) -> list[Table]:
    """Return the tables that a reviewer needs, the worst first. With `verbose`, also those of the review."""
    return [
        *_losses(previewed.changes),
        *_errors(previewed.errors),
        *_rules(previewed),
        *_changes(previewed),
        *(tables(previewed.review) if verbose and previewed.review else ()),
    ]


def _verdict(previewed: Previewed) -> Answer:
    mandatory = {found.rule: None for found in previewed.findings if found.level == "mandatory"}
    if previewed.errors or previewed.review is None:
        return Answer("Verdict", "REFUSED: the engine cannot execute this plan", "bad")
    if mandatory:
        broken = _format_count(len(mandatory), "mandatory rule")
        return Answer("Verdict", f"REFUSED: {broken} broken: {join_names([*mandatory])}", "bad")
    obstacles = "; ".join(find_obstacles(previewed.review))
    if not previewed.passes:
        return Answer("Verdict", f"NO: the plan is valid, but {obstacles}", "bad")
    if obstacles:
        return Answer("Verdict", f"the plan is valid, but {obstacles}", "notable")
    if lost := _lost(previewed.changes):
        return Answer("Verdict", f"passes, but {lost}", "notable")
    return Answer("Verdict", "passes", "good")


def _lost(changes: Sequence[Change]) -> str:
    """Return how many resources are deleted and replaced. Empty if none are."""
    counts = Counter(change.operation for change in changes if change.operation in _LOSSES)
    return " and ".join(
        f"{operation}s {_format_count(count, 'resource')}" for operation, count in sorted(counts.items())
    )


def _summary(previewed: Previewed) -> str:
    counts = Counter(change.operation for change in previewed.changes)
    known = [f"{count} to {operation}" for operation, count in sorted(counts.items())]
    if not previewed.errors:
        return ", ".join([*known, f"{previewed.unchanged} unchanged"])
    return f"incomplete; before the engine stopped: {', '.join(known)}" if known else "unknown: the engine stopped"


def _losses(changes: Sequence[Change]) -> Iterable[Table]:
    lost = sorted(
        (change for change in changes if change.operation in _LOSSES),
        key=lambda change: (change.operation, change.type, change.name),
    )
    if lost:
        yield Table(
            title="Lost",
            verdict=_lost(changes),
            state="bad",
            folded=True,
            columns=("operation", "resource", "name", "inputs that differ"),
            rows=[(change.operation.upper(), _kind(change.type), change.name, _cause(change)) for change in lost],
        )


def _cause(change: Change) -> str:
    if change.properties or change.operation == "delete":
        return ", ".join(change.properties)
    return "replaced together with what it depends on"


def _errors(errors: Sequence[str]) -> Iterable[Table]:
    if errors:
        yield Table(
            title="Errors",
            verdict=f"{_format_count(len(errors), 'error')} of the engine",
            state="bad",
            notes=errors,
            folded=True,
        )


def _rules(previewed: Previewed) -> Iterable[Table]:
    findings = previewed.findings
    mandatory, advisory = _count(findings, "mandatory"), _count(findings, "advisory")
    if not findings:
        stopped = Table("Rules", "not checked: the engine stopped earlier", "notable", folded=True)
        yield stopped if previewed.errors else Table("Rules", "no rule is broken", "good", folded=True)
        return
    yield Table(
        title="Rules",
        verdict=f"{_format_count(mandatory, 'mandatory rule')} and {_format_count(advisory, 'advisory rule')} broken",
        state="bad" if mandatory else "notable",
        columns=("rule", "level", "severity", "resource", "what is wrong"),
        rows=[
            (found.rule, found.level, found.severity, found.resource or "the stack", found.message)
            for found in findings
        ],
        folded=True,
    )


def _changes(previewed: Previewed) -> Iterable[Table]:
    grouped: dict[tuple[str, str], list[str]] = defaultdict(list)
    for change in previewed.changes:
        differs = f" ({', '.join(change.properties)})" if change.operation == "update" and change.properties else ""
        grouped[change.operation, _kind(change.type)].append(f"{change.name}{differs}")
    yield Table(
        title="Changes",
        verdict=_summary(previewed),
        state="notable" if previewed.errors else "good",
        columns=("operation", "resource", "count", "names"),
        rows=[
            (operation, kind, str(len(names)), ", ".join(sorted(names)))
            for (operation, kind), names in sorted(grouped.items())
        ],
        whole=(0, 1),
        folded=True,
    )


def _kind(token: str) -> str:
    """Return `gcp NodePool` for `gcp:container/nodePool:NodePool`, and `provider gcp` for `pulumi:providers:gcp`."""
    package, _, rest = token.partition(":")
    module, _, kind = rest.rpartition(":")
    return f"{'provider' if module == 'providers' else package} {kind}"


def _count(findings: Iterable[Finding], level: str) -> int:
    return len({found.rule for found in findings if found.level == level})


def _format_count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


MAX_CHARACTERS = 65_000
"""Most characters of a comment. GitHub accepts 65,536
(https://github.com/dead-claudia/github-limits#issues-and-pull-requests); the rest is for what is posted around it."""
_OPENED, _CLOSED = "<details>", "</details>"


def mark(stack: str) -> str:
    """Return the hidden first line that identifies a comment with the preview of this stack."""
    return f"<!-- tpu-multislice preview {stack} -->"


def comment(previewed: Previewed) -> str:
    """Return answers and tables, with the mark as the first line. Beyond GitHub's limit, the end is cut with a note."""
    found = as_markdown([*preview_answers(previewed), *preview_tables(previewed, verbose=True)])
    whole = f"{mark(previewed.stack)}\n### Preview of {previewed.stack}\n\n{found}"
    return whole if len(whole) <= MAX_CHARACTERS else _cut(whole, previewed.stack)


def _cut(whole: str, stack: str) -> str:
    note = (
        f"\n\n**CUT HERE: this comment would have {len(whole):,} characters, of which {MAX_CHARACTERS:,} are posted."
        f" Run `multislice preview -s {stack}` to see everything**"
    )
    room = MAX_CHARACTERS - len(note) - len(f"\n\n{_CLOSED}")
    # Not within a line, because half a table row breaks the table.
    end = whole.rfind("\n", 0, room)
    kept = whole[:end]
    closing = f"\n\n{_CLOSED}" if kept.count(_OPENED) > kept.count(_CLOSED) else ""
    return f"{kept}{closing}{note}"


_MAX_VALUE_LENGTH = 40
"""Maximum number of characters of a value in a table."""


class Difference(Spec):
    """One value that is not as declared."""

    path: str
    """Path in Pulumi's syntax, such as `spec.rules[0].hosts["a.b"]`."""
    declared: JsonValue
    """Declared value. `None` for nothing. The engine masks secrets."""
    found: JsonValue


class Drifted(Spec):
    """An object that is not as declared."""

    type: str
    name: str
    gone: bool
    differences: tuple[Difference, ...]
    """Differences. Empty if the object is gone."""
    repair: str | None
    """What `up` would do with it, in Pulumi's words. `None` if unknown because the plan is refused."""


class Drift(Spec):
    """What a refresh of a stack would find, and what `up` would do afterwards."""

    stack: str
    objects: tuple[Drifted, ...]
    pending: tuple[Change, ...]
    """Other changes that `up` would make, because the program or its settings changed since the last `up`."""
    errors: tuple[str, ...]
    """Why the engine cannot say what `up` would do."""
    seconds: float


def drift_tables(drift: Drift) -> list[Table]:
    """Return drift as a table."""
    count = len(drift.objects)
    counted = "1 object is" if count == 1 else f"{count} objects are"
    answer = "everything is as declared" if not count else f"{counted} not as declared"
    return [
        Table(
            title="Drift",
            verdict=answer,
            state="bad" if count or drift.errors else "good",
            columns=("object", "path", "declared", "found", "up would"),
            rows=[row for drifted in drift.objects for row in _rows(drifted)],
            notes=list(_notes(drift)),
        )
    ]


def _rows(drifted: Drifted) -> Iterable[tuple[str, ...]]:
    named = f"{drifted.type.rpartition(':')[2]} {drifted.name}"
    repair = drifted.repair or UNKNOWN
    if drifted.gone:
        yield named, "", "the object", "nothing", repair
    for difference in drifted.differences:
        yield named, difference.path, _value(difference.declared), _value(difference.found), repair


def _value(value: JsonValue) -> str:
    if value is None:
        return "nothing"
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}..."


def _notes(drift: Drift) -> Iterable[str]:
    if drift.objects:
        up = command_line("up", drift.stack, "--refresh")
        yield f"To restore what is declared, run `{up}`. Otherwise declare what was found."
    if drift.pending:
        named = ", ".join(f"{change.operation} {change.name}" for change in drift.pending)
        yield f"Not drift, but changed since the last up: {named}."
    yield from (f"The engine cannot say what up would do: {error}" for error in drift.errors)
