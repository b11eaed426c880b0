"""Reads the values of a stack file as one frozen `Settings`.

All errors are reported at once, before any provider is called. An error in one section does not hide errors in other
sections: the readable sections become a `Draft`, which all rules check.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from infra.stack.settings import rules_cloud, rules_containers, rules_existing, rules_jobs, rules_teams
from infra.stack.settings.errors import FieldError, SettingsError, refuse, unknown_key
from infra.stack.settings.jobs import JobSettings, group_order
from infra.stack.settings.schema import Image, Monitoring, Options, Team
from infra.stack.settings.sections import (
    JOBS,
    SHORT_FORM,
    Sections,
    WrongValueError,
    each,
    entries_of,
    kind_of,
    read_draft,
)
from infra.stack.settings.stack import Draft, Settings
from infra.stack.settings.starter import expand
from infra.stack.settings.values import SECRETS, Hidden
from infra.stack.tpu import SliceShape

KEYS = frozenset({*Settings.model_fields, SHORT_FORM})
"""The sections and single values of a stack file."""


def read_values(values: Mapping[str, object], stack: str) -> Settings:
    """Return the settings in the values of a stack file, which may have those of a starter.

    Raise SettingsError with all errors if they are not valid.
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

    Raise SettingsError with all errors if they are not valid.
    """
    unknown = [unknown_key("", key, KEYS) for key in raw if key not in KEYS]
    # A section with a misspelt name is read anyway, so that it is not also reported as missing.
    meant = {error.path: error.meant for error in unknown if error.meant not in raw}
    sections = Sections({meant.get(key, key): value for key, value in raw.items()})
    sections.errors += unknown
    draft = read_draft(sections)
    containers = all(kind_of(job.written) == "container" and not job.written.get("check_slices") for job in draft.jobs)
    has_jobs = {SHORT_FORM, JOBS} & sections.raw.keys()
    image = (sections.optional if has_jobs and containers else sections.required)("image", Image)
    options = sections.plain(Options)
    monitoring = sections.whole("monitoring", Monitoring)
    secrets = sections.raw.get(SECRETS, {})
    found = [*sections.errors, *check(draft), *rules_jobs.check_secrets(secrets)]
    misplaced = list(rules_jobs.misplaced_secrets(raw))
    # A value that is a misplaced secret cannot be read, which is not another error.
    places = tuple(f"{error.path}." for error in misplaced)
    errors = [*misplaced, *(error for error in found if not f"{error.path}.".startswith(places))]
    if errors or not (draft.cloud and draft.cluster):
        raise SettingsError(dict.fromkeys(errors))
    jobs = {job.name: job for _, job in draft.readable_jobs}
    own = {name: section for name, section in vars(draft).items() if name in Settings.model_fields}
    changed: dict[str, Any] = {
        "teams": {name: _in_the_jobs_order(name, team, jobs.values()) for name, team in draft.teams.items()},
        "image": image,
        "jobs": jobs,
        "monitoring": monitoring,
        "secrets": {name: value for name, value in entries_of(secrets).items() if isinstance(value, Hidden)},
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


def _in_the_jobs_order(name: str, team: Team, jobs: Iterable[JobSettings]) -> Team:
    """Return the team with the slice groups of its jobs first in its quota, because Kueue tries them in that order.

    The order in the stack file is lost, because Pulumi sorts mappings by key.
    """
    wanted = group_order(job.slices.groups for job in jobs if job.team == name)
    first = {group: team.quota[group] for group in wanted if group in team.quota}
    return team.model_copy(update={"quota": first | dict(team.quota)})
