"""Reads the sections of a stack file, as far as they are valid, as the `Draft` that all rules check.

A section with wrong keys is read without them, so that its other keys are checked in the same run.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar, cast

from pydantic import BaseModel, TypeAdapter, ValidationError, create_model

from infra.stack.settings.errors import FieldError, from_validation, missing_key, nearest, no_entries, show, write_one
from infra.stack.settings.jobs import (
    SWEEP_KEY,
    AnyJob,
    ContainerJob,
    Functions,
    Section,
    TrainingJob,
    sweep_errors,
    sweep_runs,
)
from infra.stack.settings.schema import Budget, Cloud, Cluster, Datasets, Network, Prices, Scheduling, SliceGroup, Team
from infra.stack.settings.stack import Draft, DraftJob
from infra.stack.settings.values import SECRETS, GroupName, TeamName
from workloads.spec import Spec, preset_names


class WrongValueError(Exception):
    """Raised by a check that needs a value which is itself wrong, and was reported already."""


class _Partial(BaseModel):
    """A section of which some values are wrong. Nothing can use those."""

    wrong_values: ClassVar[frozenset[str]] = frozenset()

    def __getattribute__(self, name: str) -> Any:
        if name in type(self).wrong_values:
            raise WrongValueError(name)
        return super().__getattribute__(name)


def read_section[S: Spec](value: object, path: str, model: type[S]) -> tuple[S | None, list[FieldError]]:
    """Return the section at `path` and its errors.

    Unknown keys are left out. Wrong and missing values raise WrongValueError when they are used. The section is `None`
    if it is not a mapping, or if its values contradict each other.
    """
    try:
        return model.model_validate(value), []
    except ValidationError as error:
        errors = from_validation(error, path, model)
        wrong = {str(detail["loc"][0]) for detail in error.errors() if detail["loc"]} & model.model_fields.keys()
    readable = {key: item for key, item in entries_of(value).items() if key not in wrong}
    if not isinstance(value, Mapping):
        return None, errors
    try:
        return _without(model, frozenset(wrong)).model_validate(readable, extra="ignore"), errors
    except (ValidationError, WrongValueError):
        return None, errors


@cache
def _without[S: Spec](model: type[S], wrong: frozenset[str]) -> type[S]:
    """Return a class of sections whose `wrong` values are not read."""
    if not wrong:
        return model
    values: dict[str, Any] = {name: (Any, None) for name in wrong}
    made = create_model(model.__name__, __base__=(_Partial, model), **values)
    cast(type[_Partial], made).wrong_values = wrong
    return cast(type[S], made)


def each(*checks: Iterator[FieldError]) -> Iterator[FieldError]:
    """Yield the errors of all checks. A check that needs a wrong value ends there, and the others go on."""
    for check in checks:
        with suppress(WrongValueError):
            yield from check


JOBS, SHORT_FORM = "jobs", "job"
"""The section of all jobs, and the short form for a single training job."""

_KINDS: Mapping[str, type[AnyJob]] = {"training": TrainingJob, "container": ContainerJob}
_DEFAULT_KIND = "training"
_STAND_IN = "job"
"""Name of a job whose own name is wrong."""
_MOVE = "move it into jobs, below its name"


@dataclass
class Sections:
    """The sections of one stack file, each read by its class. Errors are collected."""

    raw: Mapping[str, object]
    """Values of the stack file by section."""
    errors: list[FieldError] = field(default_factory=list[FieldError], init=False)
    """Errors of everything that has been read so far."""

    def required[S: Spec](self, name: str, model: type[S]) -> S | None:
        if name not in self.raw:
            self.errors.append(missing_key(name))
        return self.optional(name, model)

    def optional[S: Spec](self, name: str, model: type[S]) -> S | None:
        return self.read(self.raw[name], name, model) if name in self.raw else None

    def whole[S: Spec](self, name: str, model: type[S]) -> S:
        """Return a section whose values all have defaults. No value of an unreadable section can be used."""
        if name not in self.raw:
            return model()
        unread: type[S] = _without(model, frozenset(model.model_fields))
        return self.optional(name, model) or unread.model_validate({})

    def plain[S: Spec](self, model: type[S]) -> S:
        """Return top-level values of the file, with defaults for those that are missing."""
        return self.read({key: self.raw[key] for key in model.model_fields if key in self.raw}, "", model) or model()

    def named[S: Spec](self, name: str, model: type[S], key: TypeAdapter[str]) -> dict[str, S]:
        """Return the readable sections among several of one kind, of which at least one must exist."""
        written = entries_of(self.raw.get(name))
        if not written:
            self.errors.append(no_entries(name, self.raw.get(name)))
        found: dict[str, S] = {}
        for entry_name, value in written.items():
            path = f"{name}.{entry_name}"
            try:
                key.validate_python(entry_name)
            except ValidationError as error:
                self.errors += [_of_name(path, wrong) for wrong in from_validation(error, path, model)]
            if section := self.read(value, path, model):
                found[entry_name] = section
        return found

    def read[S: Spec](self, value: object, path: str, model: type[S]) -> S | None:
        """Return the section at `path`; `None` if it cannot be read."""
        section, errors = read_section(value, path, model)
        self.errors += errors
        return section


def _of_name(path: str, error: FieldError) -> FieldError:
    """Return the error of the name of the section at `path`, which is a key of the file."""
    return replace(error, path=path, fix=f"rename it to {error.meant}" if error.meant else "rename it")


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
        secrets=tuple(entries_of(raw.get(SECRETS))),
    )


def _jobs(sections: Sections) -> tuple[DraftJob, ...]:
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
        for name, value in sorted(entries_of(raw[JOBS]).items(), key=lambda item: str(item[0]))
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
    written = entries_of(value)
    if kind_of(written) != _DEFAULT_KIND:
        expected = "a training job, the only kind that job may have"
        sections.errors.append(FieldError(f"{SHORT_FORM}.kind", expected, repr(written["kind"]), _MOVE))
    if SWEEP_KEY in written:
        expected = "a single job, because its name is that of its files"
        sections.errors.append(FieldError(f"{SHORT_FORM}.{SWEEP_KEY}", expected, "a sweep", _MOVE))
    model = _model_of(written) or TrainingJob
    job, errors = _read_job(_with_defaults(value, sections, _default_name(written)), SHORT_FORM, model)
    sections.errors += [error for error in errors if error.path != f"{SHORT_FORM}.kind"]
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
    path, written = f"{JOBS}.{name}", entries_of(value)
    if SWEEP_KEY not in written:
        yield _read_named(sections, name, path, value)
    elif wrong := list(sweep_errors(path, written)):
        sections.errors += wrong
        yield _read_named(sections, name, path, {key: item for key, item in written.items() if key != SWEEP_KEY})
    else:
        for run, section in sweep_runs(name, written):
            yield _read_named(sections, run, path, section)


def _same_names(jobs: list[DraftJob]) -> Iterator[FieldError]:
    paths: dict[str, str] = {}
    for entry in jobs:
        with suppress(WrongValueError):
            if entry.job and paths.setdefault(entry.job.name, entry.path) != entry.path:
                expected = f"a name of its own for each job and each run of {paths[entry.job.name]}"
                yield FieldError(entry.path, expected, entry.job.name, "rename one of them")


def _read_named(sections: Sections, name: str, path: str, value: object) -> DraftJob:
    """Return the job with that name, which is a key of the section `jobs`."""
    written = entries_of(value)
    if "name" in written:
        expected, fix = f"no name, since {name} is the job's name", "remove it, or rename the key"
        sections.errors.append(FieldError(f"{path}.name", expected, repr(written["name"]), fix))
    model = _model_of(written)
    if model is None:
        kind = kind_of(written)
        expected, meant = f"one of the kinds {', '.join(_KINDS)}", nearest(kind, _KINDS)
        sections.errors.append(FieldError(f"{path}.kind", expected, repr(kind), write_one(meant), meant))
        return DraftJob(path, written, None)
    without_name = {key: item for key, item in written.items() if key != "name"} if written else value
    job, errors = _read_job(_with_defaults(without_name, sections, name), path, model)
    sections.errors += [_of_name(path, error) if error.path == f"{path}.name" else error for error in errors]
    return DraftJob(path, written, job)


def _read_job(value: object, path: str, model: type[AnyJob]) -> tuple[AnyJob | None, list[FieldError]]:
    """Return a job and its errors. A job with a wrong name has a valid one instead, since most rules name the job."""
    job, errors = read_section(value, path, model)
    wrong = next((error for error in errors if error.path == f"{path}.name"), None)
    if wrong and isinstance(value, Mapping):
        job, _ = read_section({**cast(Section, value), "name": wrong.meant or _STAND_IN}, path, model)
    return job, list(_keys_of_other_kinds(errors, path, model))


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


def kind_of(written: Section) -> object:
    """Return the kind of a job as written, which may be none of the known ones."""
    return written.get("kind", _DEFAULT_KIND)


def _model_of(written: Section) -> type[AnyJob] | None:
    kind = kind_of(written)
    return _KINDS.get(kind) if isinstance(kind, str) else None


def _named_entries(section: object) -> dict[str, Mapping[str, object]]:
    entries = cast(Mapping[object, object], entries_of(section))
    return {name: entries_of(entry) for name, entry in entries.items() if isinstance(name, str)}


def entries_of(value: object) -> Mapping[str, object]:
    """Return the entries of a section; none if it is not a mapping."""
    return cast(Mapping[str, object], value) if isinstance(value, Mapping) else {}
