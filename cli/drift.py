"""`multislice drift`: what others have changed in a stack's objects, and what `up` would do about it.

Owns which engine is asked and what its events mean. Nothing is changed, not the state either. The engine's refresh
compares with what the program declares, so what it does not declare, such as a status, a JobSet's `suspend` or the
node count of a pool that scales by itself, is no drift.
"""

import re
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from pulumi.automation import CommandError, EngineEvent
from pulumi.automation.events import StepEventMetadata
from rich.console import Console

from cli import engine_events, stack_file
from cli.answer import Form, write
from cli.halt import changing
from cli.pulumi_engine import PulumiEngine
from cli.sandbox_folder import existing
from infra.review.preview import Difference, Drift, Drifted, drift_tables
from infra.review.review import Change
from sandbox import programs
from sandbox.engine import Engine
from workloads.terminal import Terminal

DRIFTED = 2
"""Exit status when something is not as declared."""

_STEP = re.compile(r'\["(?P<quoted>[^"]*)"\]|\[(?P<index>\d+)\]|(?P<name>[^.\[\]]+)')
"""Of a property path."""


class Refreshing(Protocol):
    """An engine on one stack."""

    def preview_after_refresh(self, on_event: Callable[[EngineEvent], None]) -> None:
        """Raises CommandError when the plan is refused."""
        ...


def drift(stack: str, sandbox: Path | None, form: Form, console: Console) -> int:
    """Print the drift of a stack; the exit status.

    `sandbox` is the folder of the one whose engine is asked; None: the user's own Pulumi.

    Raises:
        Halt, ProgramsError: there is no such stack, its settings are wrong, or there is no engine to ask.
    """
    path = stack_file.find(stack)
    stack_file.read(path)
    # Progress goes beside the answer, which another program may read.
    waiting = Terminal(stderr=True).status(f"the engine looks at every object of {stack}")
    with _engine(path, sandbox) as engine, waiting:
        found = drifted(stack, engine)
    write(found.model_dump_json(indent=1), drift_tables(found), form, console)
    if found.errors:
        return 1
    return DRIFTED if found.objects else 0


@contextmanager
def _engine(path: Path, sandbox: Path | None) -> Generator[Refreshing]:
    if sandbox is None:
        yield PulumiEngine(stack_file.stack_name(path))
        return
    site = existing(sandbox)
    # The engine renews its copy of the stack file, which an `up` may be reading.
    with changing(site):
        yield Engine(site, programs.found(), path)


def drifted(stack: str, engine: Refreshing) -> Drift:
    """What the engine tells of the stack of that name."""
    events: list[EngineEvent] = []
    started, refusal = time.monotonic(), ""
    try:
        engine.preview_after_refresh(events.append)
    except CommandError as error:
        refusal = str(error).strip()
    differing, planned = _refreshed(events), engine_events.changes_by_urn(events)
    objects = tuple(_drifted(step, None if refusal else planned) for step in differing.values())
    return Drift(
        stack=stack,
        objects=objects,
        pending=tuple(change for urn, change in planned.items() if urn not in differing),
        errors=(engine_events.errors(events) or (refusal,)) if refusal else (),
        seconds=time.monotonic() - started,
    )


def _refreshed(events: Iterable[EngineEvent]) -> Mapping[str, StepEventMetadata]:
    """By URN, what a refresh found to be gone or different."""
    reading: set[str] = set()
    found: dict[str, StepEventMetadata] = {}
    for event in events:
        if event.resource_pre_event and event.resource_pre_event.metadata.op == "refresh":
            reading.add(event.resource_pre_event.metadata.urn)
        elif event.res_outputs_event and (step := event.res_outputs_event.metadata).urn in reading:
            reading.remove(step.urn)
            if step.new is None or step.detailed_diff or step.diffs:
                found[step.urn] = step
    return found


def _drifted(step: StepEventMetadata, planned: Mapping[str, Change] | None) -> Drifted:
    declared = step.old.inputs if step.old else None
    found = step.new.inputs if step.new else None
    paths = sorted(step.detailed_diff or step.diffs or ()) if step.new else []
    repair = planned.get(step.urn) if planned is not None else None
    return Drifted(
        type=step.type,
        name=engine_events.name(step.urn),
        gone=step.new is None,
        differences=tuple(
            Difference(path=path, declared=_at(declared, path), found=_at(found, path)) for path in paths
        ),
        repair=None if planned is None else repair.operation if repair else "leave it",
    )


def _at(properties: Any, path: str) -> Any:
    """What lies at a property path, None when nothing does."""
    found = properties
    for step in _STEP.finditer(path):
        key = step["quoted"] or step["name"]
        if isinstance(found, Mapping) and key is not None:
            found = found.get(key)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        elif isinstance(found, list) and step["index"] and int(step["index"]) < len(found):
            found = found[int(step["index"])]
        else:
            return None
    return found
