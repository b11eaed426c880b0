"""`multislice drift` shows changes to a stack's objects outside of Pulumi, and what `up` would do about them.

It changes nothing, not even the state. The refresh compares only what the program declares. Other values, such as a
status, a JobSet's `suspend` or the node count of a pool with autoscaling, are not drift.
"""

import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pulumi.automation import CommandError, EngineEvent
from pulumi.automation.events import StepEventMetadata
from rich.console import Console

from cli import engines, stack_file
from cli.answer import NEGATIVE, Form, Halt, waiting, write
from cli.sandbox_folder import stack_command
from infra.review.preview import Difference, Drift, Drifted, drift_tables
from infra.review.review import Change
from sandbox.engine import Engine

_STEP = re.compile(r'\["(?P<quoted>[^"]*)"\]|\[(?P<index>\d+)\]|(?P<name>[^.\[\]]+)')


def drift(stack: str, sandbox: Path | None, form: Form, console: Console) -> int:
    """Print the drift of a stack. Return the exit status.

    `sandbox` is the folder of the sandbox whose engine is used. None: the user's own Pulumi.
    """
    path = stack_file.find(stack)
    stack_file.read(path)
    up = stack_command("up", stack, sandbox)
    with engines.open_engine(path, sandbox, "drift") as engine, waiting(f"refreshing every object of {stack}"):
        if isinstance(engine, Engine) and not engine.destroyable():
            raise Halt(f"expected stack {stack!r} to be up, got one without resources; run `{up}`")
        found = find_drift(stack, engine)
    write(found.model_dump_json(indent=1), drift_tables(found), form, console)
    if found.errors:
        return 1
    return NEGATIVE if found.objects else 0


def find_drift(stack: str, engine: engines.PulumiEngine | Engine) -> Drift:
    """Return the drift that the engine finds in the stack."""
    events: list[EngineEvent] = []
    started, refusal = time.monotonic(), ""
    try:
        engine.preview_after_refresh(events.append)
    except CommandError as error:
        refusal = str(error).strip()
    differing, planned = _refreshed(events), engines.changes_by_urn(events)
    objects = tuple(_drifted(step, None if refusal else planned) for step in differing.values())
    return Drift(
        stack=stack,
        objects=objects,
        pending=tuple(change for urn, change in planned.items() if urn not in differing),
        errors=(engines.errors(events) or (refusal,)) if refusal else (),
        seconds=time.monotonic() - started,
    )


def _refreshed(events: Iterable[EngineEvent]) -> Mapping[str, StepEventMetadata]:
    """Return the steps of resources that a refresh found missing or different, by URN."""
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
        name=engines.name(step.urn),
        gone=step.new is None,
        differences=tuple(Difference(path=at, declared=_at(declared, at), found=_at(found, at)) for at in paths),
        repair=None if planned is None else repair.operation if repair else "leave it",
    )


def _at(properties: Any, path: str) -> Any:
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
