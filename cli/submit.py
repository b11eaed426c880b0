"""`multislice submit` reviews a job and submits it to a team's queue; `multislice render` prints its JobSet.

Both need only a kubeconfig of a member of the team. What they know of the stack is in the record that the stack
publishes in the team's namespace (`infra.stack.published`).
"""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import yaml
from rich.console import Console

from cli import stack_file
from cli.answer import NEGATIVE, Form, Halt, agree, as_json, write
from cli.deployed import Deployed, JobRef, published_for
from infra.cluster.kubernetes import UNREACHABLE, ApiError
from infra.stack.job_objects import submitted_jobset
from infra.stack.names import JOBSETS
from infra.stack.published import Published
from infra.stack.settings.errors import FieldError, SettingsError, count_errors, show
from infra.stack.settings.jobs import Section
from infra.stack.settings.stack import Settings
from infra.stack.settings.submitted import read_submitted
from infra.stack.settings.yaml_file import YamlFile, shown

_CONFLICT = 409


@dataclass(frozen=True)
class Flags:
    """Options that describe a job which runs a command."""

    name: str | None
    slices: str | None
    image: str | None
    priority: str | None
    max_restarts: int | None
    max_hours: float | None

    @property
    def given(self) -> list[str]:
        """Names of the options on the command line."""
        return [f"--{name.replace('_', '-')}" for name, value in vars(self).items() if value is not None]


@dataclass(frozen=True)
class JobRequest:
    """A job to submit."""

    source: str
    """Where it is described, for errors."""
    name: str
    section: Section
    """Section of the job in a stack file, without its name."""
    own_image: bool
    """Whether the job runs in the trainer's image unless the section names another one."""
    file: YamlFile | None = None
    """File that it is from. None: the command line."""

    @property
    def team(self) -> str | None:
        team = self.section.get("team")
        return team if isinstance(team, str) else None


@dataclass(frozen=True)
class Prepared:
    """A job that the rules allow."""

    published: Published
    settings: Settings
    manifests: Sequence[Mapping[str, Any]]
    """Its JobSet, or one for each run of a sweep."""


def read_request(words: Sequence[str], flags: Flags) -> JobRequest:
    """Return the job of a file, or the job that runs a command. Raise Halt if the words describe neither."""
    if flags.name is not None:
        return _of_command(words, flags.name, flags)
    if len(words) != 1 or flags.given:
        got = " ".join([*words, *flags.given]) or "nothing"
        raise Halt(f"expected JOB.yaml, or --name NAME --slices GROUP:COUNT -- COMMAND, got {got}")
    return read_file(Path(words[0]))


def _of_command(words: Sequence[str], name: str, flags: Flags) -> JobRequest:
    group, _, count = (flags.slices or "").partition(":")
    faults: list[str] = []
    if not group or not re.fullmatch(r"[1-9]\d*", count):
        got = "no --slices" if flags.slices is None else repr(flags.slices)
        faults.append(f"expected --slices GROUP:COUNT, such as trillium:2, got {got}")
    if not words:
        faults.append("expected a command after --, got nothing")
    if faults:
        raise Halt("\n".join(faults))
    section: dict[str, object] = {
        "kind": "container",
        "slices": {"group": group, "count": int(count)},
        "priority": flags.priority or "normal",
        "command": list(words),
    }
    optional = {"image": flags.image, "max_restarts": flags.max_restarts, "max_hours": flags.max_hours}
    section |= {key: value for key, value in optional.items() if value is not None}
    return JobRequest("the command line", name, section, own_image=flags.image is None)


def read_file(path: Path) -> JobRequest:
    """Return the job of a file. Raise Halt if the file describes none."""
    wanted = "the settings of one job, as below jobs.NAME of a stack file, and its name"
    file = stack_file.opened(path, wanted)
    found: object = file.content
    if not isinstance(found, dict):
        got = "is empty" if found is None else f"contains {show(found)}"
        raise Halt(f"{shown(path)} {got}; write {wanted}")
    section = dict(cast(dict[str, object], found))
    name = section.pop("name", None)
    if not isinstance(name, str):
        error = FieldError("name", "the name of the job", show(name), "add `name: my-job`")
        raise Halt(_listed(file.report([error]), path))
    return JobRequest(shown(path), name, section, own_image=False, file=file)


def _listed(errors: Sequence[str], source: Path | str, stack: str = "") -> str:
    others = f". Only the owner of stack {stack} can change what is in its stack file" if stack else ""
    return "\n".join([*errors, f"{count_errors(len(errors))} in {source}. Nothing was submitted{others}"])


def prepare(deployed: Deployed, request: JobRequest) -> Prepared:
    """Return the job as JobSets. Raise Halt with every error of it, or if the stack's record cannot be read."""
    published = published_for(deployed, request.team)
    section = {"image": published.image, **request.section} if request.own_image else request.section
    try:
        settings = read_submitted(request.name, section, published)
    except SettingsError as error:
        raise Halt(_listed(error_lines(error.errors, request), request.source, published.stack)) from None
    if lines := error_lines((), request):
        raise Halt(_listed(lines, request.source, published.stack))
    jobs = settings.jobs.values()
    return Prepared(published, settings, [submitted_jobset(published, settings, job) for job in jobs])


def error_lines(errors: Sequence[FieldError], request: JobRequest) -> list[str]:
    """Return these errors of a job, whose paths are those of a stack file, and those of its file as YAML."""
    own = [_as_written(each, request) for each in errors]
    return request.file.report(own) if request.file else [str(error) for error in own]


def _as_written(error: FieldError, request: JobRequest) -> FieldError:
    """Return an error of a stack file as one of the submitted job, whose keys are not below `jobs.NAME`."""
    path = f"jobs.{request.name}"
    fix = error.fix.replace(f"{path}.", "")
    fix = fix.replace("in the stack file", f"in {request.source}").replace("to the stack file", f"to {request.source}")
    whole = "name" if error.fix.startswith("rename") else "the job"
    own = error.path.removeprefix(f"{path}.") if error.path != path else whole
    return replace(error, path=own, expected=error.expected.replace(f"{path}.", ""), fix=fix)


def render(deployed: Deployed, request: JobRequest) -> int:
    """Print the JobSets of a job as YAML. Return the exit status. Raise Halt if the job has errors."""
    write_manifests(prepare(deployed, request).manifests)
    return 0


def write_manifests(manifests: Sequence[Mapping[str, Any]]) -> str:
    """Print manifests as YAML, and return the same text."""
    text: str = yaml.safe_dump_all(manifests, sort_keys=False)
    sys.stdout.write(text)
    return text


def submit(
    deployed: Deployed,
    request: JobRequest,
    console: Console,
    *,
    yes: bool,
    dry_run: bool,
    json: bool,
    verbose: bool = False,
) -> int:
    """Review a job and submit it. Return the exit status. Raise Halt if it is refused or cannot run."""
    # `render` needs no review.
    from cli.review import review_submission
    from infra.review.answers import submission_answers, submission_obstacles, submission_tables

    prepared = prepare(deployed, request)
    found = review_submission(deployed.api, prepared.published, prepared.settings)
    answer = {"submitted": False, "jobs": [*prepared.settings.jobs], "review": found}
    if not json:
        details = submission_tables(found) if verbose else []
        write("", [*submission_answers(found), *details], Form.TEXT, console)
    if obstacles := [*submission_obstacles(found)]:
        if json:
            console.out(as_json(answer))
        raise Halt(f"nothing was submitted: {'; '.join(obstacles)}", NEGATIVE)
    for manifest in prepared.manifests:
        _create(deployed, manifest, only_check=True)
    if not dry_run:
        if not yes:
            agree(f"Submit {', '.join(prepared.settings.jobs)} to the queue of team {prepared.published.team}?")
        for manifest in prepared.manifests:
            _create(deployed, manifest, only_check=False)
    if json:
        console.out(as_json({**answer, "submitted": not dry_run}))
    elif dry_run:
        console.print("dry run: nothing was submitted")
    else:
        for name in prepared.settings.jobs:
            console.print(f"job {prepared.published.namespace}/{name} was submitted")
            word = deployed.word_for(JobRef(name, prepared.published.namespace, prepared.published.team))
            for command, option in (("status", "--watch"), ("logs", "--follow"), ("explain", ""), ("cancel", "")):
                line = f"  multislice {command} {word} {deployed.options} {option}"
                console.print(line.rstrip(), style="dim", soft_wrap=True)
    return 0


def _create(deployed: Deployed, manifest: Mapping[str, Any], *, only_check: bool) -> None:
    namespace, name = (manifest["metadata"][key] for key in ("namespace", "name"))
    try:
        query = {"fieldManager": "multislice", **({"dryRun": "All"} if only_check else {})}
        deployed.api.request("POST", JOBSETS.format(namespace), manifest, query)
    except ApiError as error:
        if error.status == _CONFLICT:
            word = deployed.word_for(JobRef(name, namespace, ""))
            raise Halt(
                f"expected a new name, got {name}, which a job in namespace {namespace} has; nothing was submitted."
                f" Choose another name, or remove that job: multislice cancel {word} {deployed.options}, or if it has"
                f" ended: {deployed.reader.kubectl} delete jobset {name} -n {namespace}",
                NEGATIVE,
            ) from None
        raise Halt(f"the API server refuses job {name} in namespace {namespace}: {error}", NEGATIVE) from None
    except UNREACHABLE as error:
        unknown = "" if only_check else f"; see whether it exists: multislice list {deployed.options}"
        raise Halt(f"expected the cluster to accept job {name}, got: {error}{unknown}") from None
