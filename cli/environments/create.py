"""`multislice env create`: a stack file, and with it a stack, made from another one's.

An environment has settings of its own for the names by which Google Cloud tells the stacks of a project apart, and for
its end. Everything else is its source's, also the job and its image: pods pull it from the source's repository, and
train into a bucket of their own. All errors are reported at once before anything is made, and until the backend is
asked for resources a failure undoes what was made.
"""

import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError
from rich.console import Console

from cli import stack_file
from cli.answer import Form
from cli.environments.backend import Backend
from cli.environments.files import Files, Names
from cli.halt import Halt
from cli.stack_file import PREFIX
from infra.cost import Bill, bill
from infra.readiness import placeholders
from infra.review.tables import spent
from infra.settings.errors import FieldError, SettingsError, expectation
from infra.settings.read import parse
from infra.settings.schema import Environment
from infra.settings.stack import Settings
from infra.settings.values import ClusterName
from infra.stacks import StacksError
from workloads.spec import Spec

LONGEST = timedelta(days=7)
"""Longest lifetime of an environment; what lives longer needs a stack file of its own."""

_LIFETIME = re.compile(r"([1-9][0-9]{0,4})([mhd])")
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
_STAND_IN = "environment"
"""Name and source of a plan whose own are not valid, so that its other errors are found as well."""


@dataclass(frozen=True)
class Wish:
    """What the command line asks for."""

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
    """Whether it was deployed; False: only its files were written."""
    bill: Bill


def create(wish: Wish, backend: Backend | None, files: Files, now: datetime, form: Form, console: Console) -> int:
    """Create the environment and deploy it; without a backend only write its files. Return the exit status.

    Raises:
        Halt: it cannot be created, with every reason; or the update failed.
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
    except (StacksError, Halt) as error:
        raise Halt(f"{name} is not up, {_left(name, backend, files)}\n{error}") from None


def _then(name: str, backend: Backend | None, files: Files) -> str:
    if backend:
        return f"{name} is up. To destroy it earlier: multislice env destroy {name}"
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
    """Return the environment's stack file, checked as a whole.

    Raises:
        Halt: it is not valid; lists every error.
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
    """What a failed update has left. One that was refused before it began left nothing: stack and files are removed."""
    try:
        if name in backend.names():
            if backend.updates(name) or backend.resources(name):
                return f"what was made is billed; go on: pulumi up --stack {name}; or multislice env destroy {name}"
            backend.remove(name)
    except StacksError as error:
        return f"and it is unknown what is left ({error}); destroy it: multislice env destroy {name}"
    files.remove(name)
    return "nothing was made"


def _names(backend: Backend | None) -> list[str]:
    try:
        return list(backend.names()) if backend else []
    except StacksError as error:
        raise Halt(str(error)) from None


def _taken(name: str, stacks: list[str], files: Files) -> Iterator[FieldError]:
    places = [str(path) for path in (files.stack(name), files.policy(name)) if path.exists()]
    places += ["the backend"] * (name in stacks)
    if places:
        stays = files.stack(name).exists() and files.environment(name) is None
        fix = "choose another" if stays else f"choose another, or destroy that one: multislice env destroy {name}"
        yield FieldError("NAME", "a name that no stack has", f"{name!r}, which is in {' and '.join(places)}", fix)


def _write(plan: Plan, files: Files) -> None:
    wish = plan.wish
    head = f"# Made from {wish.source} by `multislice env create`; `multislice env destroy {wish.name}` destroys it.\n"
    files.stack(wish.name).write_text(head + yaml.safe_dump(plan.content, sort_keys=False, width=1000))
    if files.policy(wish.source).exists():
        shutil.copyfile(files.policy(wish.source), files.policy(wish.name))


def _told(plan: Plan) -> str:
    """What it is, and what it needs in addition to its source."""
    settings, wish = plan.settings, plan.wish
    chips = ", ".join(
        f"{group.chips} chips of {group.generation} ({group.capacity.kind})" for group in settings.slices.values()
    )
    return (
        f"{wish.name} is made from {wish.source} and expires at {written(plan.end)}\n"
        f"{spent(bill(settings, {}, None))}\n"
        f"{chips}: the quota of {settings.cloud.project} must have them in addition to those of {wish.source}\n"
        f"its own bucket gs://{settings.checkpoint_bucket} is deleted with it, with everything in it"
    )


def lifetime(text: str) -> timedelta | FieldError:
    """Return the time that a text such as 8h stands for, or what is wrong with it."""
    found = _LIFETIME.fullmatch(text)
    if found and (time := int(found[1]) * _UNITS[found[2]]) <= LONGEST:
        return time
    expected = f"minutes, hours or days of at most {LONGEST.days} days, such as 90m, 8h or 2d"
    return FieldError("--ttl", expected, repr(text), "give a shorter time" if found else "write it so")


def name_fault(name: str) -> FieldError | None:
    """Return what is wrong with the name, which becomes that of the cluster."""
    try:
        TypeAdapter(ClusterName).validate_python(name)
    except ValidationError as error:
        return FieldError("NAME", expectation(error.errors()[0]["msg"]), repr(name), "choose another")
    return None


def written(instant: datetime) -> str:
    """Return a time as a stack file has it."""
    return f"{instant:%Y-%m-%dT%H:%M:%SZ}"


def derived(content: Mapping[str, Any], name: str, environment: Environment) -> dict[str, Any]:
    """Return the content of the environment's stack file; `content` is that of its source, which is valid.

    The key of secrets is kept, so that those of the source can be read.
    """
    config = dict(content["config"])
    cluster, teams = config[f"{PREFIX}cluster"], config[f"{PREFIX}teams"]
    own = {
        "cluster": {**cluster, "name": name, "deletion_protection": False},
        "teams": {team: {**section, "namespace": f"{name}-{section['namespace']}"} for team, section in teams.items()},
        "environment": environment.model_dump(),
    }
    return {**content, "config": config | {f"{PREFIX}{section}": value for section, value in own.items()}}


def collisions(name: str, own: Names, others: Mapping[str, Names], unknown: Collection[str]) -> Iterator[FieldError]:
    """Yield names that the environment would share with another stack of its project.

    `unknown` are stacks of which only the names are known: environments that were made elsewhere.
    """
    near = {stack: names for stack, names in others.items() if names.cloud.project == own.cloud.project}
    clusters = {stack: names.cluster.name for stack, names in near.items()} | {stack: stack for stack in unknown}
    for stack, cluster in clusters.items():
        # Names of networks and placements begin with the cluster's.
        if f"{cluster}-".startswith(f"{name}-") or f"{name}-".startswith(f"{cluster}-"):
            yield FieldError(
                "NAME",
                f"a name that does not begin that of another cluster, nor begins with it; stack {stack} has {cluster}",
                repr(name),
                "choose another",
            )
    for stack, names in near.items():
        shared = sorted(names.namespaces & own.namespaces)
        if shared:
            yield FieldError(
                "NAME",
                f"namespaces that no other stack has; {stack} has {', '.join(shared)}",
                repr(name),
                "choose another",
            )
