"""`multislice env create`: a stack file, and with it a stack, made from another one's.

Owns the order: everything that can be wrong is told at once before anything is made, and until the backend is asked
for resources a failure takes back what was made.
"""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import yaml
from pydantic import ValidationError
from rich.console import Console

from cli import stack_file
from cli.answer import Form
from cli.environments.backend import Backend, BackendError
from cli.environments.derivation import LONGEST, collisions, derived, lifetime, name_fault, written
from cli.environments.files import Files, Names
from cli.halt import Halt
from infra.cost import Bill, bill
from infra.readiness import placeholders
from infra.review.tables import spent
from infra.settings.errors import FieldError, SettingsError
from infra.settings.read import parse
from infra.settings.schema import Environment
from infra.settings.stack import Settings
from workloads.spec import Spec

_STAND_IN = "environment"
"""Name and source of a plan whose own are faulty, so that its other faults are found as well."""


@dataclass(frozen=True)
class Wish:
    """What the command was asked for."""

    name: str
    source: str
    ttl: str


@dataclass(frozen=True)
class Plan:
    """A stack file to be written."""

    wish: Wish
    content: Mapping[str, Any]
    settings: Settings
    end: datetime


class Created(Spec):
    """The answer as one object."""

    name: str
    source: str
    expires_at: str
    file: str
    """The stack file."""
    up: bool
    """Whether it was brought up; False: its files alone were written."""
    bill: Bill


def create(wish: Wish, backend: Backend | None, files: Files, now: datetime, form: Form, console: Console) -> int:
    """Make the environment and bring it up; without a backend write its files alone. The exit status.

    Raises:
        Halt: it cannot be, with every reason; or the update failed.
    """
    plan = plan_of(wish, backend, files, now)
    _write(plan, files)
    if form is Form.TEXT:
        console.print(_told(plan), markup=False, highlight=False, soft_wrap=True)
    if backend:
        _bring_up(wish.name, backend, files)
    if form is Form.TEXT:
        console.print(_then(wish.name, backend, files), soft_wrap=True)
    else:
        console.out(_created(plan, backend, files).model_dump_json(indent=1))
    return 0


def _bring_up(name: str, backend: Backend, files: Files) -> None:
    try:
        backend.up(name)
    except (BackendError, Halt) as error:
        raise Halt(f"{name} is not up, {_left(name, backend, files)}\n{error}") from None


def _then(name: str, backend: Backend | None, files: Files) -> str:
    if backend:
        return f"{name} is up. To end it before its time: multislice env destroy {name}"
    first = " ".join(("pulumi stack init", name, *files.encryption(name)))
    return f"Wrote {files.stack(name)}. To bring it up: {first}, then pulumi up"


def _created(plan: Plan, backend: Backend | None, files: Files) -> Created:
    return Created(
        name=plan.wish.name,
        source=plan.wish.source,
        expires_at=written(plan.end),
        file=str(files.stack(plan.wish.name)),
        up=backend is not None,
        bill=bill(plan.settings, {}, None),
    )


def plan_of(wish: Wish, backend: Backend | None, files: Files, now: datetime) -> Plan:
    """The environment's stack file, checked as a whole.

    Raises:
        Halt: there are faults; names all of them.
    """
    source = stack_file.find(wish.source, files.stacks, "--from")
    stack_file.read(source)
    content = stack_file.content(source)
    ttl, faulty_name = lifetime(wish.ttl), name_fault(wish.name)
    end = now.replace(microsecond=0) + (LONGEST if isinstance(ttl, FieldError) else ttl)
    faults = [fault for fault in (faulty_name, ttl) if isinstance(fault, FieldError)]
    if files.environment(wish.source):
        faults.append(
            FieldError("--from", "a stack that stays", f"the environment {wish.source}", "name its source instead")
        )
    stacks = _names(backend)
    faults += _taken(wish.name, stacks, files)
    name = _STAND_IN if faulty_name else wish.name
    try:
        plan = derived(content, name, Environment(source=wish.source, expires_at=written(end)))
        sections = stack_file.sections(plan["config"])
        unknown = [stack for stack in stacks if stack != name and not files.stack(stack).exists()]
        faults += [] if faulty_name else collisions(name, Names.model_validate(sections), dict(files.others()), unknown)
        settings = parse(sections)
        faults += placeholders(settings) if backend else []
    except ValidationError:
        expected = "a stack whose name is lower-case letters, digits and hyphens, for it becomes a label"
        faults.append(FieldError("--from", expected, repr(wish.source), "rename the stack"))
    except SettingsError as error:
        faults += error.errors
    else:
        if not faults:
            return Plan(wish, plan, settings, end)
    listed = "\n".join(f"  - {fault}" for fault in faults)
    raise Halt(f"{wish.name} cannot be made from {wish.source}, {len(faults)} error(s):\n{listed}\nNothing was made")


def _left(name: str, backend: Backend, files: Files) -> str:
    """What an update that failed has left. One that was refused before it began left nothing: stack and files go."""
    try:
        if name in backend.names():
            if backend.updates(name) or backend.resources(name):
                return f"what was made is billed; go on: pulumi up --stack {name}; or multislice env destroy {name}"
            backend.remove(name)
    except BackendError as error:
        return f"and what is left is not known ({error}); end it: multislice env destroy {name}"
    files.remove(name)
    return "nothing was made"


def _names(backend: Backend | None) -> list[str]:
    try:
        return list(backend.names()) if backend else []
    except BackendError as error:
        raise Halt(str(error)) from None


def _taken(name: str, stacks: list[str], files: Files) -> Iterator[FieldError]:
    places = [str(path) for path in (files.stack(name), files.policy(name)) if path.exists()]
    places += ["the backend"] * (name in stacks)
    if places:
        stays = files.stack(name).exists() and files.environment(name) is None
        fix = "choose another" if stays else f"choose another, or end that one: multislice env destroy {name}"
        yield FieldError("NAME", "a name that no stack has", f"{name!r}, which is in {' and '.join(places)}", fix)


def _write(plan: Plan, files: Files) -> None:
    wish = plan.wish
    head = f"# Made from {wish.source} by `multislice env create`; `multislice env destroy {wish.name}` ends it.\n"
    files.stack(wish.name).write_text(head + yaml.safe_dump(plan.content, sort_keys=False, width=1000))
    if files.policy(wish.source).exists():
        shutil.copyfile(files.policy(wish.source), files.policy(wish.name))


def _told(plan: Plan) -> str:
    """What it is, and what it takes on top of what its source takes."""
    settings, wish = plan.settings, plan.wish
    chips = ", ".join(
        f"{group.chips} chips of {group.generation} ({group.capacity.kind})" for group in settings.slices.values()
    )
    return (
        f"{wish.name} is made from {wish.source} and ends at {written(plan.end)}\n"
        f"{spent(bill(settings, {}, None))}\n"
        f"{chips}: the quota of {settings.cloud.project} must have them beside those of {wish.source}\n"
        f"its own bucket gs://{settings.checkpoint_bucket} goes with it, and all that is in it"
    )
