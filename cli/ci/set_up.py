"""`python -m cli.ci set-up`: the GitHub environments, accounts and rights with which the workflows reach Google Cloud.

It reports every error before it changes anything. It protects an environment before any account trusts it, and lets
the workflows use the cloud only at the end. It can be repeated.
"""

import shlex
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cli import stack_file
from cli.ci import accounts, protection
from cli.ci.accounts import MAIN, Command, Environment, Place
from cli.ci.github import Access
from cli.halt import Halt
from infra.readiness import EXAMPLES
from infra.settings.errors import FieldError

_KEYS = "gcpkms://"
_EXISTS = "already exists"
_SWITCH = {"CLOUD": "true"}
"""Variable of the repository that tells the workflows that the setup is complete."""


@dataclass(frozen=True)
class Wish:
    """Options of the command."""

    stacks: Sequence[str]
    ephemeral: str
    """Stack that pull requests get copies of."""
    reviewers: Sequence[str]
    unattended: Sequence[str]
    """Stacks that are deployed from `main` without a review."""


@dataclass(frozen=True)
class Plan:
    """Everything that the command sets up."""

    environments: Sequence[Environment]
    numbers: dict[str, str]
    """Project numbers, by project."""
    reviewers: Sequence[protection.Reviewer]
    repository_id: int


def set_up(wish: Wish, folder: Path, access: Access, *, apply: bool) -> Iterator[str]:
    """Yield each step as a line of text, and carry it out if `apply`.

    Raises:
        Halt: the stack files, the repository or the projects are not ready, with every reason; or a call failed.
    """
    places = _places(wish, folder)
    protection.require_protected(access, MAIN)
    plan = Plan(
        accounts.environments(places, wish.ephemeral, wish.unattended),
        {place.project: _number(place.project) for place in places},
        protection.reviewers(access, wish.reviewers),
        protection.repository_id(access),
    )
    for place in places:
        yield f"{place.project}, of the stack {place.stack}"
        yield from _carried_out(accounts.of_project(place.project, plan.repository_id), apply=apply)
        for environment in plan.environments:
            if environment.place == place:
                yield from _environment(environment, plan, access, wish, apply=apply)
    if apply:
        protection.put_variables(access, _SWITCH)
    yield "Done; it may be repeated." if apply else "Nothing was changed. Add --apply to do this."


def _environment(environment: Environment, plan: Plan, access: Access, wish: Wish, *, apply: bool) -> Iterator[str]:
    number = plan.numbers[environment.place.project]
    by = f"after a review by {' or '.join(wish.reviewers)}" if environment.reviewed else "without a review"
    yield f"  environment {environment.name}: for {' and '.join(environment.branches)}, {by}"
    if apply:
        reviewed_by = plan.reviewers if environment.reviewed else ()
        protection.protect(access, environment.name, environment.branches, reviewed_by)
    yield from _carried_out(accounts.of_environment(environment, number, access.repository), apply=apply)
    values = accounts.variables(environment, number)
    yield from (f"    {name}={value}" for name, value in values.items())
    if apply:
        protection.put_variables(access, values, environment.name)


def _places(wish: Wish, folder: Path) -> list[Place]:
    """Return project, state and key of each stack, from its file.

    Raises:
        Halt: stacks share a project or a key, or there is no reviewer; lists every error.
    """
    files = {stack: stack_file.find(stack, folder) for stack in wish.stacks}
    faults: list[FieldError] = []
    places: list[Place] = []
    for stack, path in files.items():
        project, key = stack_file.read(path).cloud.project, str(stack_file.content(path).get("secretsprovider", ""))
        places.append(Place(stack, project, key.removeprefix(_KEYS).partition("?")[0]))
        faults += _faults(places, key)
    for option, named in (("--ephemeral", [wish.ephemeral]), ("--unattended", wish.unattended)):
        for stack in sorted({*named} - {*wish.stacks}):
            faults.append(FieldError(option, f"one of the stacks {', '.join(wish.stacks)}", stack, "name one of them"))
    if not wish.reviewers:
        faults.append(FieldError("--reviewer", "at least one reviewer", "none", "name people or ORGANIZATION/TEAM"))
    if faults:
        listed = "".join(f"\n  - {fault}" for fault in faults)
        raise Halt(f"Nothing was set up; what has to change first:{listed}")
    return places


def _faults(places: Sequence[Place], key: str) -> Iterator[FieldError]:
    """Yield the errors of the last place."""
    *others, place = places
    setting = f"cloud.project of {place.stack}"
    if place.project in EXAMPLES:
        yield FieldError(setting, "a project of your own", place.project, "write it into the stack file")
        return
    if shared := [other.stack for other in others if place.project == other.project]:
        said = f"{place.project}, which is that of {shared[0]}"
        yield FieldError(setting, "a project of its own: rights end at projects", said, "give each stack a project")
    if not key.startswith(f"{_KEYS}projects/{place.project}/"):
        yield FieldError(
            f"secretsprovider of {place.stack}",
            f"a key of the project, {_KEYS}projects/{place.project}/...",
            key or "nothing",
            f"`pulumi stack init {place.stack} --secrets-provider=...`, as docs/backends.md says",
        )


def _number(project: str) -> str:
    asked = ("projects", "describe", project, "--format", "value(projectNumber)")
    number = _ran(Command(asked)).strip()
    if not number.isdigit():
        raise Halt(f"expected the number of the project {project} from gcloud, got {number!r}")
    return number


def _carried_out(commands: Iterator[Command], *, apply: bool) -> Iterator[str]:
    for command in commands:
        yield f"    gcloud {shlex.join(command.words)}"
        if apply:
            _ran(command)


def _ran(command: Command) -> str:
    """Run the command and return its output."""
    words = ["gcloud", *command.words]
    try:
        ended = subprocess.run([*words, "--quiet"], capture_output=True, text=True, check=False)
    except OSError:
        raise Halt("expected the program gcloud on the PATH, got none; install the Google Cloud SDK") from None
    if ended.returncode and not (command.makes and _EXISTS in ended.stderr):
        raise Halt(f"`{shlex.join(words)}` failed: {ended.stderr.strip()}\nRepair this and run the command again")
    return ended.stdout
