"""`python -m cli.ci set-up` creates the GitHub environments, accounts and rights of the workflows in Google Cloud.

It reports all errors before it changes anything. It protects an environment before an account trusts it, and enables
the workflows to use the cloud only at the end. It can be repeated.
"""

import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli import stack_file
from cli.answer import Halt
from cli.ci import accounts
from cli.ci.accounts import MAIN, Command, Place
from cli.ci.github import api, gh, listed
from infra.readiness import EXAMPLES
from infra.settings.errors import FieldError

_KEYS = "gcpkms://"
_EXISTS = "already exists"
_SWITCH = {"CLOUD": "true"}
"""Variable of the repository that enables the workflows when the setup is complete."""


@dataclass(frozen=True)
class Wish:
    """Options of the command."""

    repository: str
    """Repository, as OWNER/NAME."""
    stacks: Sequence[str]
    ephemeral: str
    reviewers: Sequence[str]
    unattended: Sequence[str]


def set_up(wish: Wish, folder: Path, *, apply: bool) -> Iterator[str]:
    """Yield each step as a line of text, and execute it if `apply`. Raise Halt with every reason against the setup."""
    places = _places(wish, folder)
    # Every push to the branch must need a review, because the accounts trust it.
    if not api(f"repos/{wish.repository}/branches/{MAIN}")["protected"]:
        raise Halt(
            f"expected a protected branch {MAIN}, got one to which all users with write access may push;"
            " require pull requests with an approval in the repository's settings (Rules, or Branches)"
        )
    numbers = {place.project: _number(place.project) for place in places}
    reviewers = [_reviewer(name) for name in wish.reviewers]
    # The number stays the same when the repository is renamed.
    repository_id = api(f"repos/{wish.repository}")["id"]
    environments = accounts.environments(places, wish.ephemeral, wish.unattended)
    for place in places:
        yield f"{place.project}, of the stack {place.stack}"
        yield from _execute(accounts.prepare_project(place.project, repository_id), apply=apply)
        number = numbers[place.project]
        for environment in (each for each in environments if each.place == place):
            by = f"after a review by {' or '.join(wish.reviewers)}" if environment.reviewed else "without a review"
            yield f"  environment {environment.name}: for {' and '.join(environment.branches)}, {by}"
            if apply:
                reviewed_by = reviewers if environment.reviewed else ()
                _protect(f"repos/{wish.repository}/environments/{environment.name}", environment.branches, reviewed_by)
            yield from _execute(accounts.prepare_environment(environment, number, wish.repository), apply=apply)
            values = accounts.variables(environment, number)
            yield from (f"    {name}={value}" for name, value in values.items())
            if apply:
                _set_variables(values, wish.repository, "--env", environment.name)
    if apply:
        _set_variables(_SWITCH, wish.repository)
    yield "Done. The command can be repeated." if apply else "Nothing was changed. Add --apply to run these steps."


def _places(wish: Wish, folder: Path) -> list[Place]:
    """Return project, state and key of each stack, from its file. Raise Halt with every error of files and options."""
    files = {stack: stack_file.find(stack, folder) for stack in wish.stacks}
    faults: list[FieldError] = []
    places: list[Place] = []
    for stack, path in files.items():
        project, key = stack_file.read(path).cloud.project, str(stack_file.content(path).get("secretsprovider", ""))
        places.append(Place(stack, project, key.removeprefix(_KEYS).partition("?")[0]))
        faults += _faults(places, key)
    for option, named in (("--ephemeral", [wish.ephemeral]), ("--unattended", wish.unattended)):
        for stack in sorted({*named} - {*wish.stacks}):
            faults.append(FieldError(option, f"one of the stacks {', '.join(wish.stacks)}", stack, "choose one"))
    if not wish.reviewers:
        faults.append(FieldError("--reviewer", "at least one reviewer", "none", "name people or ORGANIZATION/TEAM"))
    if faults:
        listed = "".join(f"\n  - {fault}" for fault in faults)
        raise Halt(f"Nothing was set up. Correct these errors first:{listed}")
    return places


def _faults(places: Sequence[Place], key: str) -> Iterator[FieldError]:
    """Yield the errors of the last place."""
    *others, place = places
    setting = f"cloud.project of {place.stack}"
    if place.project in EXAMPLES:
        yield FieldError(setting, "a project of your own", place.project, "write it into the stack file")
        return
    if shared := [other.stack for other in others if place.project == other.project]:
        said = f"{place.project}, which is the project of {shared[0]}"
        yield FieldError(
            setting, "its own project, because rights apply to projects", said, "use a separate project for each stack"
        )
    if not key.startswith(f"{_KEYS}projects/{place.project}/"):
        yield FieldError(
            f"secretsprovider of {place.stack}",
            f"a key of the project, {_KEYS}projects/{place.project}/...",
            key or "nothing",
            f"`pulumi stack init {place.stack} --secrets-provider=...`, as docs/how-to/backends.md says",
        )


def _reviewer(name: str) -> Mapping[str, Any]:
    """Look up a person by login, or a team by ORGANIZATION/TEAM."""
    organization, _, team = name.rpartition("/")
    path = f"orgs/{organization}/teams/{team}" if organization else f"users/{name}"
    return {"type": "Team" if organization else "User", "id": api(path)["id"]}


def _protect(environment: str, branches: Sequence[str], reviewed_by: Sequence[Mapping[str, Any]]) -> None:
    """Create or change an environment, so that only jobs on these branches can use it, after a review.

    `reviewed_by` has the reviewers. Without reviewers, no review is needed. Reviewers cannot approve runs that they
    started. An environment is never unprotected, because the call that creates it sets the reviewers and allows no
    branch yet (https://docs.github.com/rest/deployments/environments).
    """
    policy = {"protected_branches": False, "custom_branch_policies": True}
    own = {"reviewers": reviewed_by, "prevent_self_review": bool(reviewed_by), "deployment_branch_policy": policy}
    api(environment, "PUT", own)
    policies = f"{environment}/deployment-branch-policies"
    allowed = {each["name"]: each["id"] for each in listed(policies, "branch_policies")}
    for name in allowed.keys() - set(branches):
        api(f"{policies}/{allowed[name]}", "DELETE")
    for name in sorted(set(branches) - allowed.keys()):
        api(policies, "POST", {"name": name})


def _set_variables(values: Mapping[str, str], repository: str, *where: str) -> None:
    for name, value in values.items():
        gh("variable", "set", name, "--body", value, "--repo", repository, *where)


def _number(project: str) -> str:
    number = _run(Command(("projects", "describe", project, "--format", "value(projectNumber)"))).strip()
    if not number.isdigit():
        raise Halt(f"expected the number of the project {project} from gcloud, got {number!r}")
    return number


def _execute(commands: Iterator[Command], *, apply: bool) -> Iterator[str]:
    for command in commands:
        yield f"    gcloud {shlex.join(command.words)}"
        if apply:
            _run(command)


def _run(command: Command) -> str:
    words = ["gcloud", *command.words]
    try:
        ended = subprocess.run([*words, "--quiet"], capture_output=True, text=True, check=False)
    except OSError:
        raise Halt("expected the program gcloud on the PATH, got none; install the Google Cloud SDK") from None
    if ended.returncode and not (command.makes and _EXISTS in ended.stderr):
        raise Halt(f"`{shlex.join(words)}` failed: {ended.stderr.strip()}\nFix the cause and run the command again")
    return ended.stdout
