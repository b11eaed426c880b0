"""The only reader of a stack's configuration: from `pulumi.Config` to one frozen `Settings`."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

import pulumi
from pulumi.runtime.config import CONFIG, is_config_secret
from pydantic import TypeAdapter, ValidationError

from infra.settings import rules_cloud, rules_jobs, rules_teams
from infra.settings.errors import (
    Fault,
    SettingsError,
    expectation,
    from_validation,
    missing_key,
    nearest,
    no_entries,
    shown,
    unknown_key,
)
from infra.settings.jobs import SWEEP_KEY, AnyJob, ContainerJob, Job, TrainingJob, group_order, sweep_faults, sweep_runs
from infra.settings.schema import (
    Budget,
    Cloud,
    Cluster,
    Datasets,
    Environment,
    Image,
    Monitoring,
    Network,
    Options,
    Prices,
    Scheduling,
    SliceGroup,
    Team,
)
from infra.settings.stack import Draft, DraftJob, Settings, Written
from infra.settings.values import HIDDEN, SECTION, GroupName, Hidden, TeamName, of_texts
from infra.tpu import SliceShape
from workloads.spec import Spec

SHORT_FORM = "job"


JOBS = "jobs"


_KINDS: Mapping[str, type[AnyJob]] = {"training": TrainingJob, "container": ContainerJob}


_USUAL_KIND = "training"


KEYS = frozenset({*Settings.model_fields, SHORT_FORM})
"""The sections of a stack file, and the values beside them."""


class Sections:
    """The sections of one stack file."""

    faults: list[Fault]
    """Of all that was read so far."""

    def __init__(self, raw: Mapping[str, object]) -> None:
        """`raw` is the stack file's values by section."""
        self.raw = raw
        self.faults = []

    def required[S: Spec](self, name: str, model: type[S]) -> S | None:
        """A section that must be there."""
        if name not in self.raw:
            self.faults.append(missing_key(name))
            return None
        return self._read(self.raw[name], name, model)

    def optional[S: Spec](self, name: str, model: type[S]) -> S | None:
        """A section that may be missing."""
        return self._read(self.raw[name], name, model) if name in self.raw else None

    def whole[S: Spec](self, name: str, model: type[S]) -> S:
        """A section whose values all have defaults, which it is made of where it is missing or cannot be read."""
        return self.optional(name, model) or model()

    def plain[S: Spec](self, model: type[S]) -> S:
        """Single values of the whole file, with the defaults of those that are missing or cannot be read."""
        return self._read({key: self.raw[key] for key in model.model_fields if key in self.raw}, "", model) or model()

    def named[S: Spec](self, name: str, model: type[S], key: TypeAdapter[str]) -> dict[str, S]:
        """The readable ones of several sections of one kind, of which there must be one at least."""
        written = entries(self.raw.get(name))
        if not written:
            self.faults.append(no_entries(name, self.raw.get(name)))
        found: dict[str, S] = {}
        for entry_name, value in written.items():
            path = f"{name}.{entry_name}"
            try:
                key.validate_python(entry_name)
            except ValidationError as error:
                self.faults.append(Fault(path, expectation(error.errors()[0]["msg"]), repr(entry_name), "rename it"))
            if section := self._read(value, path, model):
                found[entry_name] = section
        return found

    def _read[S: Spec](self, value: object, path: str, model: type[S]) -> S | None:
        section, faults = read(value, path, model)
        self.faults += faults
        return section


def load(config: pulumi.Config) -> Settings:
    """The settings of the running stack.

    Raises:
        SettingsError: they are not valid; names every fault.
    """
    prefix = f"{config.name}:"
    keys = [key.removeprefix(prefix) for key in CONFIG.get() if key.startswith(prefix)]
    return parse({key: _read_key(config, key) for key in keys})


def parse(raw: Mapping[str, object]) -> Settings:
    """The settings in `raw`, the stack file's values by section, with marks of `infra.settings.values` for secrets.

    Raises:
        SettingsError: they are not valid; names every fault.
    """
    if misplaced := list(rules_jobs.misplaced(raw)):
        # Told alone: a section that cannot be read says nothing of the others.
        raise SettingsError(misplaced)
    unknown = [unknown_key("", key, KEYS) for key in raw if key not in KEYS]
    # A section whose name is misspelt is read all the same, so that nothing is told of what would be missing.
    meant = {fault.path: fault.meant for fault in unknown if fault.meant not in raw}
    sections = Sections({meant.get(key, key): value for key, value in raw.items()})
    sections.faults += unknown
    draft = _draft(sections)
    containers = all(kind_of(job.written) == "container" and not job.written.get("check_slices") for job in draft.jobs)
    written = {SHORT_FORM, JOBS} & sections.raw.keys()
    image = (sections.optional if written and containers else sections.required)("image", Image)
    options = sections.plain(Options)
    monitoring = sections.whole("monitoring", Monitoring)
    faults = [*sections.faults, *check(draft), *rules_jobs.check_secrets(sections.raw.get(SECTION, {}))]
    if faults or not (draft.cloud and draft.cluster):
        raise SettingsError(dict.fromkeys(faults))
    jobs = {job.name: job for _, job in draft.readable_jobs}
    return Settings(
        cloud=draft.cloud,
        cluster=draft.cluster,
        slices=draft.slices,
        teams={name: _in_the_jobs_order(name, team, jobs.values()) for name, team in draft.teams.items()},
        image=image,
        jobs=jobs,
        datasets=draft.datasets,
        network=draft.network,
        scheduling=draft.scheduling,
        prices=draft.prices,
        budget=draft.budget,
        environment=draft.environment,
        monitoring=monitoring,
        secrets={
            name: value for name, value in entries(sections.raw.get(SECTION)).items() if isinstance(value, Hidden)
        },
        **dict(options),
    )


def _draft(sections: Sections) -> Draft:
    raw = sections.raw
    return Draft(
        cloud=sections.required("cloud", Cloud),
        cluster=sections.required("cluster", Cluster),
        slices=sections.named("slices", SliceGroup, TypeAdapter(GroupName)),
        written_slices=mappings(raw.get("slices")),
        teams=sections.named("teams", Team, TypeAdapter(TeamName)),
        written_teams=mappings(raw.get("teams")),
        jobs=read_jobs(sections),
        datasets=sections.optional("datasets", Datasets),
        network=sections.whole("network", Network),
        scheduling=sections.whole("scheduling", Scheduling),
        prices=sections.whole("prices", Prices),
        budget=sections.optional("budget", Budget),
        environment=sections.optional("environment", Environment),
        secrets=tuple(entries(raw.get(SECTION))),
    )


def _in_the_jobs_order(name: str, team: Team, jobs: Iterable[Job]) -> Team:
    """The team with the slice groups of its jobs first in its quota: Kueue tries them as they stand there.

    The stack file cannot say it by its own order, for Pulumi hands mappings over sorted by key.
    """
    wanted = group_order(job.slices.groups for job in jobs if job.team == name)
    first = {group: team.quota[group] for group in wanted if group in team.quota}
    return team.model_copy(update={"quota": first | dict(team.quota)})


def _read_key(config: pulumi.Config, key: str) -> object:
    """The value of a section; marks where it is secret, for Pulumi tells no more than that some part of it is."""
    if not is_config_secret(config.full_key(key)):
        return _plain_value(config.require(key))
    return of_texts(_plain_value(config.require(key))) if key == SECTION else HIDDEN


def _plain_value(text: str) -> object:
    """Pulumi hands structured values over as JSON, plain ones as they are."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def check(draft: Draft) -> Iterator[Fault]:
    """Every fault between the sections of `draft`."""
    shapes: dict[str, SliceShape] = {}
    for name, group in draft.written_slices.items():
        fault = rules_cloud.offered(f"slices.{name}", group)
        if fault:
            yield fault
        elif name in draft.slices:
            shapes[name] = draft.slices[name].shape
            yield from rules_cloud.check_slices(f"slices.{name}", draft.slices[name])
            yield from rules_cloud.second_network(name, draft)
    yield from rules_cloud.check_place(draft, shapes)
    yield from rules_cloud.check_controllers(draft, shapes)
    yield from rules_teams.check_teams(draft, shapes)
    yield from rules_cloud.check_scheduling(draft)
    yield from rules_jobs.check_jobs(draft, shapes)
    yield from rules_teams.check_admission(draft, shapes)
    yield from rules_teams.check_prices(draft, shapes)
    yield from rules_teams.check_budget(draft, shapes)
    yield from rules_cloud.check_environment(draft)


def read[S: Spec](value: object, path: str, model: type[S]) -> tuple[S | None, list[Fault]]:
    """The section at `path`, None if it cannot be read, and its faults."""
    try:
        return model.model_validate(value), []
    except ValidationError as error:
        return _without_unknown_keys(value, model), from_validation(error, path, model)


def _without_unknown_keys[S: Spec](value: object, model: type[S]) -> S | None:
    """The section less keys it does not have, so that a misspelt one does not hide other faults."""
    try:
        return model.model_validate(value, extra="ignore")
    except ValidationError:
        return None


def entries(value: object) -> Mapping[str, object]:
    """What is in a mapping; nothing in what is none."""
    return cast(Mapping[str, object], value) if isinstance(value, Mapping) else {}


def mappings(value: object) -> Mapping[str, Mapping[str, object]]:
    """The same of a mapping of mappings."""
    return {name: entries(entry) for name, entry in entries(value).items()}


def read_jobs(sections: Sections) -> tuple[DraftJob, ...]:
    """The jobs in the order of their names, and in `sections` their faults."""
    raw = sections.raw
    if SHORT_FORM in raw and JOBS in raw:
        sections.faults.append(
            Fault(SHORT_FORM, "either jobs or, for one training job, job", "both", "move it into jobs, below its name")
        )
    if JOBS not in raw:
        return tuple(_short_form(sections))
    if not isinstance(raw[JOBS], Mapping):
        fix = "write jobs by name, or {} for a stack without any"
        sections.faults.append(Fault(JOBS, "a mapping by name", shown(raw[JOBS]), fix))
    found = [
        job
        for name, value in sorted(entries(raw[JOBS]).items(), key=lambda item: str(item[0]))
        for job in _sweep_or_job(sections, name, value)
    ]
    sections.faults += _same_names(found)
    return tuple(found)


def _short_form(sections: Sections) -> Iterator[DraftJob]:
    if SHORT_FORM not in sections.raw:
        # Asked for, since a section that was lost by mistake would delete the jobs.
        fix = "add jobs to the stack file, or job for one alone, or jobs: {} for a stack without any"
        sections.faults.append(Fault(JOBS, "the stack's jobs", "nothing", fix))
        return
    written = entries(sections.raw[SHORT_FORM])
    if written.get("kind", _USUAL_KIND) != _USUAL_KIND:
        got = repr(written["kind"])
        fix = "move it into jobs, below its name"
        sections.faults.append(Fault(f"{SHORT_FORM}.kind", "a training job, for job stands for one", got, fix))
        return
    if SWEEP_KEY in written:
        expected, fix = "one job, for its name is that of its files", "move it into jobs, below its name"
        sections.faults.append(Fault(f"{SHORT_FORM}.{SWEEP_KEY}", expected, "a sweep", fix))
    job, faults = read(sections.raw[SHORT_FORM], SHORT_FORM, TrainingJob)
    sections.faults += faults
    yield DraftJob(SHORT_FORM, written, job)


def _sweep_or_job(sections: Sections, name: str, value: object) -> Iterator[DraftJob]:
    """The runs of a sweep, of which the ones that are wrong in the same way tell it once; or the job."""
    path, written = f"{JOBS}.{name}", entries(value)
    if SWEEP_KEY not in written:
        yield _named(sections, name, path, value)
        return
    if wrong := list(sweep_faults(path, written)):
        sections.faults += wrong
        yield _named(sections, name, path, {key: item for key, item in written.items() if key != SWEEP_KEY})
        return
    for run, section in sweep_runs(name, written):
        yield _named(sections, run, path, section)


def _same_names(jobs: list[DraftJob]) -> Iterator[Fault]:
    """A run of a sweep that has the name of another job."""
    paths: dict[str, str] = {}
    for entry in jobs:
        if entry.job and paths.setdefault(entry.job.name, entry.path) != entry.path:
            expected = f"a name of its own for each job and each run of {paths[entry.job.name]}"
            yield Fault(entry.path, expected, entry.job.name, "rename one of them")


def _named(sections: Sections, name: str, path: str, value: object) -> DraftJob:
    written = entries(value)
    if "name" in written:
        expected = f"no name, since {name} is the job's name"
        sections.faults.append(Fault(f"{path}.name", expected, repr(written["name"]), "remove it, or rename the key"))
    kind = written.get("kind", _USUAL_KIND)
    model = _KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        expected = f"one of the kinds {', '.join(_KINDS)}"
        fix = f"change {path}.kind in the stack file"
        sections.faults.append(Fault(f"{path}.kind", expected, repr(kind), fix, nearest(kind, _KINDS)))
        return DraftJob(path, written, None)
    job, faults = read(_with_name(value, name), path, model)
    sections.faults += [_of_key(fault, path) for fault in faults]
    return DraftJob(path, written, job)


def _with_name(value: object, name: str) -> object:
    return {**entries(value), "name": name} if isinstance(value, Mapping) else value


def _of_key(fault: Fault, path: str) -> Fault:
    """A fault of the name, which is a key."""
    return Fault(path, fault.expected, fault.got, "rename it") if fault.path == f"{path}.name" else fault


def kind_of(written: Written) -> object:
    """What a job's section says of its kind, right or wrong."""
    return written.get("kind", _USUAL_KIND)
