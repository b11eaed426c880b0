"""Reads a stack's configuration, from `pulumi.Config` to one frozen `Settings`. No other module reads it.

All errors are reported at once, before any provider is called. An error in one section does not hide errors in other
sections: the readable sections become a `Draft`, which all rules check.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, cast

import pulumi
from pulumi.runtime.config import CONFIG, is_config_secret
from pydantic import TypeAdapter, ValidationError

from infra.project import STACKS, ProjectError, find_project
from infra.settings import rules_cloud, rules_containers, rules_existing, rules_jobs, rules_teams
from infra.settings.errors import (
    FieldError,
    SettingsError,
    expectation,
    missing_key,
    nearest,
    no_entries,
    show,
    unknown_key,
    write_one,
)
from infra.settings.jobs import (
    SWEEP_KEY,
    AnyJob,
    ContainerJob,
    Functions,
    Job,
    Section,
    TrainingJob,
    group_order,
    sweep_errors,
    sweep_runs,
)
from infra.settings.partial import WrongValueError, each, read_section, unread
from infra.settings.schema import (
    Budget,
    Cloud,
    Cluster,
    Datasets,
    Image,
    Monitoring,
    Network,
    Options,
    Prices,
    Scheduling,
    SliceGroup,
    Team,
)
from infra.settings.stack import Draft, DraftJob, Settings
from infra.settings.starter import expand
from infra.settings.values import HIDDEN, SECRETS, GroupName, Hidden, TeamName, hide_texts
from infra.settings.yaml_file import UnreadableError, read_yaml
from infra.tpu import SliceShape
from workloads.spec import Spec, preset_names

JOBS, SHORT_FORM = "jobs", "job"
"""The section of all jobs, and the short form for a single training job."""
KEYS = frozenset({*Settings.model_fields, SHORT_FORM})
"""The sections and single values of a stack file."""

_KINDS: Mapping[str, type[AnyJob]] = {"training": TrainingJob, "container": ContainerJob}
_DEFAULT_KIND = "training"
_STAND_IN = "job"
"""Name of a job whose own name is wrong."""
_MOVE = "move it into jobs, below its name"


class Sections:
    """The sections of one stack file, each read by its class. Errors are collected."""

    errors: list[FieldError]
    """Errors of everything that has been read so far."""

    def __init__(self, raw: Mapping[str, object]) -> None:
        """`raw` contains the stack file's values by section."""
        self.raw = raw
        self.errors = []

    def required[S: Spec](self, name: str, model: type[S]) -> S | None:
        if name not in self.raw:
            self.errors.append(missing_key(name))
            return None
        return self.read(self.raw[name], name, model)

    def optional[S: Spec](self, name: str, model: type[S]) -> S | None:
        return self.read(self.raw[name], name, model) if name in self.raw else None

    def whole[S: Spec](self, name: str, model: type[S]) -> S:
        """Return a section whose values all have defaults. No value of an unreadable section can be used."""
        return self.optional(name, model) or (unread(model) if name in self.raw else model())

    def plain[S: Spec](self, model: type[S]) -> S:
        """Return top-level values of the file, with defaults for those that are missing."""
        return self.read({key: self.raw[key] for key in model.model_fields if key in self.raw}, "", model) or model()

    def named[S: Spec](self, name: str, model: type[S], key: TypeAdapter[str]) -> dict[str, S]:
        """Return the readable sections among several of one kind, of which at least one must exist."""
        written = _entries(self.raw.get(name))
        if not written:
            self.errors.append(no_entries(name, self.raw.get(name)))
        found: dict[str, S] = {}
        for entry_name, value in written.items():
            path = f"{name}.{entry_name}"
            try:
                key.validate_python(entry_name)
            except ValidationError as error:
                (detail, *_) = error.errors()
                meant = detail.get("ctx", {}).get("meant", "")
                expected = expectation(detail["msg"])
                self.errors.append(FieldError(path, expected, repr(entry_name), _rename(meant), meant))
            if section := self.read(value, path, model):
                found[entry_name] = section
        return found

    def read[S: Spec](self, value: object, path: str, model: type[S]) -> S | None:
        """Return the section at `path`; `None` if it cannot be read."""
        section, errors = read_section(value, path, model)
        self.errors += errors
        return section


def load(config: pulumi.Config) -> Settings:
    """Return the settings of the running stack.

    Raises:
        SettingsError: they are not valid; lists all errors.
    """
    prefix = f"{config.name}:"
    keys = [key.removeprefix(prefix) for key in CONFIG.get() if key.startswith(prefix)]
    stack = pulumi.get_stack()
    try:
        return read_values({key: _read_key(config, key) for key in keys}, stack)
    except SettingsError as error:
        raise SettingsError(error.errors, _located(error.errors, stack)) from None


def _located(errors: Iterable[FieldError], stack: str) -> list[str]:
    """Return the errors with file and line, or nothing if the stack's file is not in its usual place."""
    try:
        file = read_yaml(find_project() / STACKS / f"Pulumi.{stack}.yaml")
    except (ProjectError, OSError, UnreadableError):
        return []
    return file.report(errors, file.lines.below("config"))


def read_values(values: Mapping[str, object], stack: str) -> Settings:
    """Return the settings in the values of a stack file, which may have those of a starter.

    Raises:
        SettingsError: they are not valid; lists all errors.
    """
    found = expand(values, stack)
    try:
        settings, errors = parse(found.sections), ()
    except SettingsError as error:
        settings, errors = None, error.errors
    if found.faults:
        # Other sections depend on the stand-ins for the wrong values, so they are only checked by themselves.
        sections, own = Sections(found.sections), found.sections.keys() - found.derived
        read_draft(sections)
        certain = (each for each in errors if found.is_certain(each) or each.path in own - KEYS)
        errors = (*certain, *(each for each in sections.errors if each.path.partition(".")[0] in own))
    refuse([*found.faults, *map(found.as_written, errors)])
    assert settings, "values without errors are settings"
    return settings


def parse(raw: Mapping[str, object]) -> Settings:
    """Return the settings in `raw`, the stack file's values by section, with `HIDDEN` in place of secrets.

    Raises:
        SettingsError: they are not valid; lists all errors.
    """
    unknown = [unknown_key("", key, KEYS) for key in raw if key not in KEYS]
    # A section with a misspelt name is read anyway, so that it is not also reported as missing.
    meant = {error.path: error.meant for error in unknown if error.meant not in raw}
    sections = Sections({meant.get(key, key): value for key, value in raw.items()})
    sections.errors += unknown
    draft = read_draft(sections)
    containers = all(_kind(job.written) == "container" and not job.written.get("check_slices") for job in draft.jobs)
    has_jobs = {SHORT_FORM, JOBS} & sections.raw.keys()
    image = (sections.optional if has_jobs and containers else sections.required)("image", Image)
    options = sections.plain(Options)
    monitoring = sections.whole("monitoring", Monitoring)
    secrets = sections.raw.get(SECRETS, {})
    found = [*sections.errors, *check(draft), *rules_jobs.check_secrets(secrets)]
    misplaced = list(rules_jobs.misplaced_secrets(raw))
    errors = [*misplaced, *(error for error in found if not _is_of(misplaced, error))]
    if errors or not (draft.cloud and draft.cluster):
        raise SettingsError(dict.fromkeys(errors))
    jobs = {job.name: job for _, job in draft.readable_jobs}
    own = {name: section for name, section in vars(draft).items() if name in Settings.model_fields}
    changed: dict[str, Any] = {
        "teams": {name: _in_the_jobs_order(name, team, jobs.values()) for name, team in draft.teams.items()},
        "image": image,
        "jobs": jobs,
        "monitoring": monitoring,
        "secrets": {name: value for name, value in _entries(secrets).items() if isinstance(value, Hidden)},
    }
    return Settings(**own | changed | dict(options))


def check(draft: Draft) -> Iterator[FieldError]:
    """Yield every error that involves several sections of a stack file."""
    shapes: dict[str, SliceShape] = {}
    for name, group in draft.written_slices.items():
        error = rules_cloud.check_offered(f"slices.{name}", group)
        if error:
            yield error
            continue
        with suppress(WrongValueError):
            if name in draft.slices:
                shapes[name] = draft.slices[name].shape
    yield from each(*(rules_cloud.check_slices(name, draft) for name in shapes))
    yield from each(
        rules_cloud.check(draft, shapes),
        rules_existing.check(draft),
        rules_teams.check(draft, shapes),
        rules_jobs.check(draft, shapes),
        rules_containers.check_functions(draft, shapes),
        rules_teams.check_money(draft, shapes),
    )


def _is_of(secrets: Iterable[FieldError], error: FieldError) -> bool:
    """Return whether an error is one of a value that cannot be read because it is a misplaced secret."""
    return any(f"{error.path}.".startswith(f"{secret.path}.") for secret in secrets)


def _rename(meant: str) -> str:
    return f"rename it to {meant}" if meant else "rename it"


def refuse(errors: Iterable[FieldError]) -> None:
    """Raise SettingsError with all errors, if there are any."""
    if found := list(dict.fromkeys(errors)):
        raise SettingsError(found)


def check_jobs(draft: Draft) -> Iterator[FieldError]:
    """Yield every error of jobs that are submitted to a stack whose own settings are valid."""
    shapes = {name: group.shape for name, group in draft.slices.items()}
    yield from each(
        rules_jobs.check(draft, shapes),
        rules_teams.check_reaches(draft, shapes),
        rules_teams.check_money(draft, shapes),
    )


def read_draft(sections: Sections) -> Draft:
    """Return the sections that can be read. Their errors are added to `sections`."""
    raw = sections.raw
    return Draft(
        cloud=sections.required("cloud", Cloud),
        cluster=sections.required("cluster", Cluster),
        slices=sections.named("slices", SliceGroup, TypeAdapter(GroupName)),
        written_slices=_named_entries(raw.get("slices")),
        teams=sections.named("teams", Team, TypeAdapter(TeamName)),
        written_teams=_named_entries(raw.get("teams")),
        jobs=_jobs(sections),
        datasets=sections.optional("datasets", Datasets),
        network=sections.whole("network", Network),
        scheduling=sections.whole("scheduling", Scheduling),
        prices=sections.whole("prices", Prices),
        budget=sections.optional("budget", Budget),
        functions=sections.whole("functions", Functions),
        secrets=tuple(_entries(raw.get(SECRETS))),
    )


def _in_the_jobs_order(name: str, team: Team, jobs: Iterable[Job]) -> Team:
    """Return the team with the slice groups of its jobs first in its quota, because Kueue tries them in that order.

    The order in the stack file is lost, because Pulumi sorts mappings by key.
    """
    wanted = group_order(job.slices.groups for job in jobs if job.team == name)
    first = {group: team.quota[group] for group in wanted if group in team.quota}
    return team.model_copy(update={"quota": first | dict(team.quota)})


def _jobs(sections: Sections) -> tuple[DraftJob, ...]:
    """Return the jobs in the order of their names, and add their errors to `sections`."""
    raw = sections.raw
    if SHORT_FORM in raw and JOBS in raw:
        sections.errors.append(FieldError(SHORT_FORM, "either jobs or, for one training job, job", "both", _MOVE))
    if JOBS not in raw:
        return tuple(_short_form(sections))
    if not isinstance(raw[JOBS], Mapping):
        fix = "write jobs by name, or {} for a stack without jobs"
        sections.errors.append(FieldError(JOBS, "a mapping by name", show(raw[JOBS]), fix))
    found = [
        job
        for name, value in sorted(_entries(raw[JOBS]).items(), key=lambda item: str(item[0]))
        for job in _sweep_or_job(sections, name, value)
    ]
    wrong = {error.path for error in sections.errors}
    sections.errors += _same_names([job for job in found if job.path not in wrong])
    return tuple(found)


def _short_form(sections: Sections) -> Iterator[DraftJob]:
    if SHORT_FORM not in sections.raw:
        # Required, because a section that was removed by mistake would delete the jobs.
        fix = "add jobs to the stack file, or job for a single job, or jobs: {} for a stack without jobs"
        sections.errors.append(FieldError(JOBS, "the stack's jobs", "nothing", fix))
        return
    value = sections.raw[SHORT_FORM]
    written = _entries(value)
    if _kind(written) != _DEFAULT_KIND:
        expected = "a training job, the only kind that job may have"
        sections.errors.append(FieldError(f"{SHORT_FORM}.kind", expected, repr(written["kind"]), _MOVE))
    if SWEEP_KEY in written:
        expected = "a single job, because its name is that of its files"
        sections.errors.append(FieldError(f"{SHORT_FORM}.{SWEEP_KEY}", expected, "a sweep", _MOVE))
    kind = written.get("kind")
    model = (_KINDS.get(kind) if isinstance(kind, str) else None) or TrainingJob
    job, errors = _read_job(_with_defaults(value, sections, _default_name(written)), SHORT_FORM, model)
    errors = [error for error in errors if error.path != f"{SHORT_FORM}.kind"]
    sections.errors += _keys_of_other_kinds(errors, SHORT_FORM, model)
    yield DraftJob(SHORT_FORM, written, job)


def _default_name(written: Section) -> str:
    """Return the name of the only job of a stack if it is not written: that of its preset."""
    preset = written.get("preset")
    return str(preset).replace(".", "-") if preset in preset_names() else "job"


def _with_defaults(value: object, sections: Sections, name: str) -> object:
    """Return the section of a job with its name, and with the team if the stack has only one."""
    teams = list(_named_entries(sections.raw.get("teams")))
    team = {"team": teams[0]} if len(teams) == 1 else {}
    return {"name": name, **team, **cast(Section, value)} if isinstance(value, Mapping) else value


def _sweep_or_job(sections: Sections, name: str, value: object) -> Iterator[DraftJob]:
    """Yield the runs of a sweep, or the job. An error that several runs share is reported once."""
    path, written = f"{JOBS}.{name}", _entries(value)
    if SWEEP_KEY not in written:
        yield _read_named(sections, name, path, value)
    elif wrong := list(sweep_errors(path, written)):
        sections.errors += wrong
        yield _read_named(sections, name, path, {key: item for key, item in written.items() if key != SWEEP_KEY})
    else:
        for run, section in sweep_runs(name, written):
            yield _read_named(sections, run, path, section)


def _same_names(jobs: list[DraftJob]) -> Iterator[FieldError]:
    """Yield an error for each run of a sweep that has the name of another job."""
    paths: dict[str, str] = {}
    for entry in jobs:
        with suppress(WrongValueError):
            if entry.job and paths.setdefault(entry.job.name, entry.path) != entry.path:
                expected = f"a name of its own for each job and each run of {paths[entry.job.name]}"
                yield FieldError(entry.path, expected, entry.job.name, "rename one of them")


def _read_named(sections: Sections, name: str, path: str, value: object) -> DraftJob:
    """Return the job with that name, which is a key of the section `jobs`."""
    written = _entries(value)
    if "name" in written:
        expected = f"no name, since {name} is the job's name"
        sections.errors.append(
            FieldError(f"{path}.name", expected, repr(written["name"]), "remove it, or rename the key")
        )
    kind = _kind(written)
    model = _KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        expected, meant = f"one of the kinds {', '.join(_KINDS)}", nearest(kind, _KINDS)
        sections.errors.append(FieldError(f"{path}.kind", expected, repr(kind), write_one(meant), meant))
        return DraftJob(path, written, None)
    without_name = {key: item for key, item in written.items() if key != "name"} if written else value
    job, errors = _read_job(_with_defaults(without_name, sections, name), path, model)
    sections.errors += [
        FieldError(path, error.expected, error.got, _rename(error.meant), error.meant)
        if error.path == f"{path}.name"
        else error
        for error in _keys_of_other_kinds(errors, path, model)
    ]
    return DraftJob(path, written, job)


def _read_job(value: object, path: str, model: type[AnyJob]) -> tuple[AnyJob | None, list[FieldError]]:
    """Return a job and its errors. A job with a wrong name has a valid one instead, since most rules name the job."""
    job, errors = read_section(value, path, model)
    wrong = next((error for error in errors if error.path == f"{path}.name"), None)
    if wrong and isinstance(value, Mapping):
        job, _ = read_section({**cast(Section, value), "name": wrong.meant or _STAND_IN}, path, model)
    return job, errors


def _keys_of_other_kinds(errors: Iterable[FieldError], path: str, model: type[AnyJob]) -> Iterator[FieldError]:
    """Yield the errors of a job. A key that only jobs of another kind have is no misspelt key of this one."""
    kinds = {
        f"{path}.{key}": kind for kind, each in _KINDS.items() for key in each.model_fields.keys() - model.model_fields
    }
    for error in errors:
        if kind := kinds.get(error.path):
            yield FieldError(error.path, f"no such key, since only jobs of kind {kind} have it", error.got, "remove it")
        else:
            yield error


def _kind(written: Section) -> object:
    return written.get("kind", _DEFAULT_KIND)


def _named_entries(section: object) -> dict[str, Mapping[str, object]]:
    """Return the entries of each entry. YAML also has keys that are no names, such as null and numbers."""
    entries = cast(Mapping[object, object], _entries(section))
    return {name: _entries(entry) for name, entry in entries.items() if isinstance(name, str)}


def _entries(value: object) -> Mapping[str, object]:
    return cast(Mapping[str, object], value) if isinstance(value, Mapping) else {}


def _read_key(config: pulumi.Config, key: str) -> object:
    """Return the value of a section. It is hidden if any part of it is secret, because Pulumi does not say which
    part."""
    if not is_config_secret(config.full_key(key)):
        return _plain_value(config.require(key))
    return hide_texts(_plain_value(config.require(key))) if key == SECRETS else HIDDEN


def _plain_value(text: str) -> object:
    """Parse a value of Pulumi: JSON for structured values, plain text for all others."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
