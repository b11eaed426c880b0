"""The only reader of a stack's configuration.

Owns the way from `pulumi.Config` to one frozen `Settings`: everything that is wrong is said in one
error, before any provider is asked for anything. The shape of the sections lies in
`infra.stack_file`, the rules between them in `infra.rules`.
"""

import json
from collections.abc import Mapping
from typing import cast

import pulumi
from pulumi.runtime.config import CONFIG, is_config_secret
from pydantic import TypeAdapter, ValidationError

from infra.addresses import Network
from infra.environment import Environment
from infra.faults import Fault, SettingsError, expectation, from_validation, missing_key, unknown_key
from infra.hidden import HIDDEN, SECTION, Hidden, of_texts
from infra.monitoring.section import Monitoring
from infra.names import GroupName, TeamName
from infra.rules import secrets as rules_of_secrets
from infra.rules.check import check
from infra.rules.draft import Draft
from infra.scheduling import Scheduling
from infra.spending import Budget, Prices
from infra.stack_file import Cloud, Cluster, Datasets, Image, Job, Options, Settings, SliceGroup, Team
from workloads.spec import Spec

__all__ = ["Settings", "SettingsError", "load", "parse"]


def load(config: pulumi.Config) -> Settings:
    """The settings of the running stack.

    Raises:
        SettingsError: they are not valid; names every fault.
    """
    prefix = f"{config.name}:"
    keys = [key.removeprefix(prefix) for key in CONFIG.get() if key.startswith(prefix)]
    return parse({key: _read_key(config, key) for key in keys})


def parse(raw: Mapping[str, object]) -> Settings:
    """The settings in `raw`, the stack file's values by section, with marks of `infra.hidden` for secrets.

    Raises:
        SettingsError: they are not valid; names every fault.
    """
    if misplaced := list(rules_of_secrets.misplaced(raw)):
        # Told alone: a section that cannot be read says nothing of the others.
        raise SettingsError(misplaced)
    faults = [unknown_key("", key, Settings.model_fields) for key in raw if key not in Settings.model_fields]
    cloud = _section(raw, "cloud", Cloud, faults)
    cluster = _section(raw, "cluster", Cluster, faults)
    slices = _named_sections(raw, "slices", SliceGroup, TypeAdapter(GroupName), faults)
    teams = _named_sections(raw, "teams", Team, TypeAdapter(TeamName), faults)
    image = _section(raw, "image", Image, faults)
    job = _section(raw, "job", Job, faults)
    datasets = _section(raw, "datasets", Datasets, faults) if "datasets" in raw else None
    network = _read(raw.get("network", {}), "network", Network, faults)
    scheduling = _read(raw.get("scheduling", {}), "scheduling", Scheduling, faults)
    prices, budget = _money(raw, faults)
    environment = _section(raw, "environment", Environment, faults) if "environment" in raw else None
    monitoring = _read(raw.get("monitoring", {}), "monitoring", Monitoring, faults)
    options = _read({key: raw[key] for key in Options.model_fields if key in raw}, "", Options, faults)
    draft = Draft(
        cloud=cloud,
        cluster=cluster,
        slices=slices,
        written_slices={name: _entries(entry) for name, entry in _entries(raw.get("slices")).items()},
        teams=teams,
        written_teams={name: _entries(entry) for name, entry in _entries(raw.get("teams")).items()},
        job=job,
        written_job=_entries(raw.get("job")),
        datasets=datasets,
        network=network or Network(),
        scheduling=scheduling or Scheduling(),
        prices=prices or Prices(),
        budget=budget,
        environment=environment,
    )
    faults += [*check(draft), *rules_of_secrets.check(raw.get(SECTION, {}))]
    if faults or not (
        cloud and cluster and image and job and network and scheduling and prices and monitoring and options
    ):
        raise SettingsError(faults)
    return Settings(
        cloud=cloud,
        cluster=cluster,
        slices=slices,
        teams=teams | {job.team: _in_the_jobs_order(teams[job.team], job)},
        image=image,
        job=job,
        datasets=datasets,
        network=network,
        scheduling=scheduling,
        prices=prices,
        budget=budget,
        environment=environment,
        monitoring=monitoring,
        secrets={name: value for name, value in _entries(raw.get(SECTION)).items() if isinstance(value, Hidden)},
        **dict(options),
    )


def _money(raw: Mapping[str, object], faults: list[Fault]) -> tuple[Prices | None, Budget | None]:
    budget = _section(raw, "budget", Budget, faults) if "budget" in raw else None
    return _read(raw.get("prices", {}), "prices", Prices, faults), budget


def _in_the_jobs_order(team: Team, job: Job) -> Team:
    """The team with the job's slice groups first in its quota: Kueue tries them as they stand there.

    The stack file cannot say it by its own order, for Pulumi hands mappings over sorted by key.
    """
    first = {name: team.quota[name] for name in job.slices.groups if name in team.quota}
    return team.model_copy(update={"quota": first | dict(team.quota)})


def _read_key(config: pulumi.Config, key: str) -> object:
    """The value of a section; marks where it is secret, for Pulumi tells no more than that some part of it is."""
    if not is_config_secret(config.full_key(key)):
        return _value(config.require(key))
    return of_texts(_value(config.require(key))) if key == SECTION else HIDDEN


def _value(text: str) -> object:
    """Pulumi hands structured values over as JSON, plain ones as they are."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _section[S: Spec](raw: Mapping[str, object], name: str, model: type[S], faults: list[Fault]) -> S | None:
    if name not in raw:
        faults.append(missing_key(name))
        return None
    return _read(raw[name], name, model, faults)


def _named_sections[S: Spec](
    raw: Mapping[str, object], name: str, model: type[S], key: TypeAdapter[str], faults: list[Fault]
) -> dict[str, S]:
    entries = _entries(raw.get(name))
    if not entries:
        faults.append(Fault(name, "at least one entry by name", repr(raw.get(name)), f"add one to {name}"))
        return {}
    sections: dict[str, S] = {}
    for entry_name, value in entries.items():
        path = f"{name}.{entry_name}"
        try:
            key.validate_python(entry_name)
        except ValidationError as error:
            faults.append(Fault(path, expectation(error.errors()[0]["msg"]), repr(entry_name), "rename it"))
        section = _read(value, path, model, faults)
        if section:
            sections[entry_name] = section
    return sections


def _read[S: Spec](value: object, path: str, model: type[S], faults: list[Fault]) -> S | None:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        faults += from_validation(error, path, model)
        return _without_unknown_keys(value, model)


def _without_unknown_keys[S: Spec](value: object, model: type[S]) -> S | None:
    """The section less keys it does not have, so that a misspelt one does not hide other faults."""
    try:
        return model.model_validate(value, extra="ignore")
    except ValidationError:
        return None


def _entries(value: object) -> Mapping[str, object]:
    return cast(Mapping[str, object], value) if isinstance(value, Mapping) else {}
