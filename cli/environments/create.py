"""`multislice env create` copies a stack file and deploys the copy as a new stack, an environment.

Only the expiry and the names that must be unique in a Google Cloud project are new. Everything else is copied,
including the job and its image. The pods pull the image from the source's repository and write to a bucket of their
own. All errors are reported at once, before anything is created. If the deployment fails before it creates resources,
the files and the stack are removed again.
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
from cli.answer import Form, Halt, as_json
from cli.environments.backend import Backend
from cli.environments.files import Files, Names
from cli.stack_file import PREFIX
from infra.cost import bill
from infra.readiness import placeholders
from infra.review.answers import spent
from infra.settings.errors import FieldError, SettingsError, expectation
from infra.settings.read import parse
from infra.settings.schema import Environment
from infra.settings.stack import Settings
from infra.settings.values import ClusterName
from infra.stacks import StacksError

LONGEST = timedelta(days=7)
"""Longest lifetime of an environment. A longer one needs a permanent stack file."""

_LIFETIME = re.compile(r"([1-9][0-9]{0,4})([mhd])")
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
_STAND_IN = "environment"
"""Replacement for an invalid name or source, so that the other errors are found too."""


@dataclass(frozen=True)
class Wish:
    """Arguments of the command line."""

    name: str
    source: str
    ttl: str


@dataclass(frozen=True)
class Plan:
    """Stack file to write."""

    wish: Wish
    content: Mapping[str, Any]
    settings: Settings
    end: datetime


def create(wish: Wish, backend: Backend | None, files: Files, now: datetime, form: Form, console: Console) -> int:
    """Create and deploy the environment, or only write its files if `backend` is None. Return the exit status."""
    plan, name = make_plan(wish, backend, files, now), wish.name
    _write(plan, files)
    if form is Form.TEXT:
        console.print(_summary(plan), markup=False, highlight=False, soft_wrap=True)
    if backend:
        try:
            backend.up(name)
        except (StacksError, Halt) as error:
            raise Halt(f"{name} is not up, {_left(name, backend, files)}\n{error}") from None
    file = files.stack(name)
    if form is not Form.TEXT:
        copied = {"name": name, "source": wish.source, "expires_at": written(plan.end), "file": str(file)}
        console.out(as_json({**copied, "up": backend is not None, "bill": bill(plan.settings, {}, None)}))
    elif backend:
        console.print(f"{name} is up. To destroy it earlier: multislice env destroy {name}", soft_wrap=True)
    else:
        console.print(f"Wrote {file}. To bring it up: multislice up -s {name}", soft_wrap=True)
    return 0


def make_plan(wish: Wish, backend: Backend | None, files: Files, now: datetime) -> Plan:
    """Return the environment's stack file. Raise Halt with every error of it."""
    source = stack_file.find(wish.source, files.stacks, "--from")
    stack_file.read(source)
    content = stack_file.content(source)
    ttl, faulty_name = lifetime(wish.ttl), name_fault(wish.name)
    end = now.replace(microsecond=0) + (LONGEST if isinstance(ttl, FieldError) else ttl)
    faults = [fault for fault in (faulty_name, ttl) if isinstance(fault, FieldError)]
    if files.environment(wish.source):
        faults.append(
            FieldError("--from", "a permanent stack", f"the environment {wish.source}", "choose its source instead")
        )
    stacks = list(backend.names()) if backend else []
    faults += _taken(wish.name, stacks, files)
    name = _STAND_IN if faulty_name else wish.name
    try:
        plan = derive(content, name, Environment(source=wish.source, expires_at=written(end)))
        sections = stack_file.sections(plan["config"])
        unknown = [stack for stack in stacks if stack != name and not files.stack(stack).exists()]
        faults += [] if faulty_name else collisions(name, Names.model_validate(sections), dict(files.others()), unknown)
        settings = parse(sections)
        faults += placeholders(settings) if backend else []
    except ValidationError:
        expected = "a stack name of lower-case letters, digits and hyphens, because it becomes a label"
        faults.append(FieldError("--from", expected, repr(wish.source), "rename the stack"))
    except SettingsError as error:
        faults += error.errors
    else:
        if not faults:
            return Plan(wish, plan, settings, end)
    listed = "\n".join(f"  - {fault}" for fault in faults)
    raise Halt(f"cannot create {wish.name} from {wish.source}, {len(faults)} error(s):\n{listed}\nNothing was created")


def _left(name: str, backend: Backend, files: Files) -> str:
    """Return what a failed update has left. If it created no resource, remove the stack and its files."""
    try:
        if name in backend.names():
            if backend.updates(name) or backend.resources(name):
                return (
                    f"and its resources are billed; continue with {backend.command('up', name)}, or run"
                    f" multislice env destroy {name}"
                )
            backend.remove(name)
    except StacksError as error:
        return f"and its resources cannot be listed ({error}); destroy it: multislice env destroy {name}"
    files.remove(name)
    return "and nothing was created"


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


def _summary(plan: Plan) -> str:
    """Return the price and the needs of the environment, in addition to those of its source."""
    settings, wish = plan.settings, plan.wish
    chips = ", ".join(
        f"{group.chips} chips of {group.generation} ({group.capacity.kind})" for group in settings.slices.values()
    )
    return (
        f"{wish.name} is a copy of {wish.source} and expires at {written(plan.end)}\n"
        f"{spent(bill(settings, {}, None))}\n"
        f"{chips}: the quota of {settings.cloud.project} must have them in addition to those of {wish.source}\n"
        f"its bucket gs://{settings.checkpoint_bucket} and everything in it are deleted with the environment"
    )


def lifetime(text: str) -> timedelta | FieldError:
    """Parse a lifetime such as 8h. Return the error if it is not valid."""
    found = _LIFETIME.fullmatch(text)
    if found and (time := int(found[1]) * _UNITS[found[2]]) <= LONGEST:
        return time
    expected = f"minutes, hours or days of at most {LONGEST.days} days, such as 90m, 8h or 2d"
    return FieldError("--ttl", expected, repr(text), "choose a shorter time" if found else "write it like this")


def name_fault(name: str) -> FieldError | None:
    """Return the error of an invalid name. The name becomes that of the cluster."""
    try:
        TypeAdapter(ClusterName).validate_python(name)
    except ValidationError as error:
        return FieldError("NAME", expectation(error.errors()[0]["msg"]), repr(name), "choose another")
    return None


def written(instant: datetime) -> str:
    """Return a time in the format of stack files."""
    return f"{instant:%Y-%m-%dT%H:%M:%SZ}"


def derive(content: Mapping[str, Any], name: str, environment: Environment) -> dict[str, Any]:
    """Return the content of the environment's stack file, made from the valid content of its source.

    It keeps the encryption key, so that the secrets of the source can be read.
    """
    config = dict(content["config"])
    cluster, teams = config[f"{PREFIX}cluster"], config[f"{PREFIX}teams"]
    own = {
        "cluster": {**cluster, "name": name, "deletion_protection": False},
        "teams": {team: {**section, "namespace": f"{name}-{section['namespace']}"} for team, section in teams.items()},
        "environment": environment.model_dump(),
    }
    if budget := config.get(f"{PREFIX}budget"):
        # The alerts of the source already count everything in the project.
        own["budget"] = {key: value for key, value in budget.items() if key != "alerts"}
    return {**content, "config": config | {f"{PREFIX}{section}": value for section, value in own.items()}}


def collisions(name: str, own: Names, others: Mapping[str, Names], unknown: Collection[str]) -> Iterator[FieldError]:
    """Yield an error for each name that the environment would share with another stack of its project.

    `unknown` has stacks without a stack file here, such as environments that were created on another machine.
    """
    near = {stack: names for stack, names in others.items() if names.project == own.project}
    clusters = {stack: names.cluster for stack, names in near.items()} | {stack: stack for stack in unknown}
    for stack, cluster in clusters.items():
        # Names of networks and placements begin with the cluster's.
        if f"{cluster}-".startswith(f"{name}-") or f"{name}-".startswith(f"{cluster}-"):
            expected = "a name that is not a prefix of another cluster's name, or the reverse"
            yield FieldError("NAME", f"{expected}; stack {stack} has {cluster}", repr(name), "choose another")
    for stack, names in near.items():
        if shared := sorted(names.namespaces & own.namespaces):
            expected = f"namespaces that no other stack has; stack {stack} has {', '.join(shared)}"
            yield FieldError("NAME", expected, repr(name), "choose another")
