"""The only reader of a stack's configuration.

Owns the way from `pulumi.Config` to one frozen `Settings`: everything that is wrong is said in one
error, before any provider is asked for anything. The shape of the sections lies in `infra.stack_file` and
`infra.jobs`, reading one of them in `infra.sections`, the rules between them in `infra.rules`.
"""

import json
from collections.abc import Iterable, Mapping

import pulumi
from pulumi.runtime.config import CONFIG, is_config_secret
from pydantic import TypeAdapter

from infra.addresses import Network
from infra.environment import Environment
from infra.faults import SettingsError, unknown_key
from infra.hidden import HIDDEN, SECTION, Hidden, of_texts
from infra.job_sections import SECTION as JOBS
from infra.job_sections import SHORT_FORM, kind_of, read_jobs
from infra.jobs import Job, group_order
from infra.monitoring.section import Monitoring
from infra.names import GroupName, TeamName
from infra.rules import secrets as rules_of_secrets
from infra.rules.check import check
from infra.rules.draft import Draft
from infra.scheduling import Scheduling
from infra.sections import Sections, entries, mappings
from infra.spending import Budget, Prices
from infra.stack_file import Cloud, Cluster, Datasets, Image, Options, Settings, SliceGroup, Team

__all__ = ["Settings", "SettingsError", "load", "parse"]


KEYS = frozenset({*Settings.model_fields, SHORT_FORM})
"""The sections of a stack file, and the values beside them."""


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
    faults = [*sections.faults, *check(draft), *rules_of_secrets.check(sections.raw.get(SECTION, {}))]
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
        return _value(config.require(key))
    return of_texts(_value(config.require(key))) if key == SECTION else HIDDEN


def _value(text: str) -> object:
    """Pulumi hands structured values over as JSON, plain ones as they are."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
