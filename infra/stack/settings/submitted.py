"""Reads jobs that a member of a team submits to a stack, as the stack file's section `jobs` would be read.

The rules are those of the stack file, on the sections that the stack has published for the team. In addition, `up` fits
a team's namespace to the jobs of the stack file, but not to submitted ones, so their rights have limits."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, get_args

from infra.stack.published import Published
from infra.stack.settings import rules_jobs, rules_teams
from infra.stack.settings.errors import FieldError, SettingsError
from infra.stack.settings.jobs import AnyJob, PodLevel, Section
from infra.stack.settings.partial import each
from infra.stack.settings.sections import JOBS, Sections, read_draft
from infra.stack.settings.stack import Draft, Settings, join_names

_ASK = "or let a job of the stack file have it"


def read_submitted(name: str, section: Section, published: Published) -> Settings:
    """Return the stack as published, with the job or the sweep `name` as its only jobs.

    `section` is the job's section of a stack file. Its default team is that of the record.

    Raises:
        SettingsError: the job is not valid; lists all errors.
    """
    written = {"team": published.team, **section}

    def check(draft: Draft) -> Iterator[FieldError]:
        limits = (limit for path, job in draft.readable_jobs for limit in _limits(path, job, published))
        return chain(_check(draft), each(*limits))

    return read_only_job(name, {**published.sections, JOBS: {name: written}}, check)


def read_only_job(
    name: str, sections_of_stack: Mapping[str, object], check: Callable[[Draft], Iterable[FieldError]]
) -> Settings:
    """Return a stack whose only jobs are the job or the runs of the sweep `name`, if `check` finds no error.

    Raises:
        SettingsError: the job is not valid; lists all errors.
    """
    sections = Sections(sections_of_stack)
    draft = read_draft(sections)
    if errors := [*sections.errors, *check(draft)]:
        raise SettingsError(dict.fromkeys(_of_member(f"{JOBS}.{name}.", error) for error in errors))
    own: dict[str, Any] = {name: section for name, section in vars(draft).items() if name in Settings.model_fields}
    jobs: dict[str, Any] = {"jobs": {job.name: job for _, job in draft.readable_jobs}, "secrets": {}}
    return Settings(**(own | jobs))


def _check(draft: Draft) -> Iterator[FieldError]:
    """Yield every error of jobs that are submitted to a stack whose own settings are valid."""
    shapes = {name: group.shape for name, group in draft.slices.items()}
    yield from each(
        rules_jobs.check(draft, shapes),
        rules_teams.check_reaches(draft, shapes),
        rules_teams.check_money(draft, shapes),
    )


def _of_member(prefix: str, error: FieldError) -> FieldError:
    """Return an error with a fix that a member can follow, who can add no secret to the stack."""
    if error.path.removeprefix(prefix) in ("secrets", "trackers.wandb"):
        return replace(error, fix=f"remove it, {_ASK}")
    return error


def _limits(path: str, job: AnyJob, published: Published) -> Iterator[Iterator[FieldError]]:
    """Yield the checks of a submitted job, each of which may need a value that is wrong."""
    yield _own_team(path, job, published)
    yield _new_name(path, job, published)
    yield check_paused(path, job)
    yield _trainer_image(path, job, published)
    yield _order(path, job, [*published.teams[published.team].quota])
    yield _rights(path, job, published)
    yield _head(path, job, published)


def _own_team(path: str, job: AnyJob, published: Published) -> Iterator[FieldError]:
    if job.team != published.team and job.team in published.teams:
        expected = f"{published.team}, the team of namespace {published.namespace}"
        yield FieldError(f"{path}.team", expected, repr(job.team), "remove it, or submit to the other namespace")


def _new_name(path: str, job: AnyJob, published: Published) -> Iterator[FieldError]:
    if job.name in published.jobs:
        expected = f"a name other than those of the stack's own jobs: {join_names(published.jobs)}"
        yield FieldError(path, expected, repr(job.name), "rename the job")


def check_paused(path: str, job: AnyJob) -> Iterator[FieldError]:
    """Yield the error of a paused job that has no queue of its own."""
    if job.paused:
        fix = "remove it; `multislice cancel` stops a submitted job, and the next submit resumes it"
        yield FieldError(
            f"{path}.paused", "false, since only a job of the stack file has a queue of its own", "true", fix
        )


def _trainer_image(path: str, job: AnyJob, published: Published) -> Iterator[FieldError]:
    if published.image is None and (job.image is None or job.check_slices):
        field = "check_slices" if job.image else "kind"
        yield FieldError(
            f"{path}.{field}",
            "a job without the trainer's image, which the stack lacks",
            job.kind,
            "ask the owner of the stack to add the section image",
        )


def _order(path: str, job: AnyJob, tried: list[str]) -> Iterator[FieldError]:
    """Yield the error of groups in another order than that in which the team's queue tries them."""
    groups = [group for group in job.slices.groups if group in tried]
    if groups != sorted(groups, key=tried.index):
        expected = f"the order of the team's queue: {', '.join(group for group in tried if group in groups)}"
        yield FieldError(f"{path}.slices.fallback", expected, ", then ".join(groups), "change the order")


def _rights(path: str, job: AnyJob, published: Published) -> Iterator[FieldError]:
    strictest_first: tuple[PodLevel, ...] = get_args(PodLevel)
    if job.host_network and not published.host_network:
        expected = "false, since no job of the stack in this namespace uses the network of its hosts"
        yield FieldError(f"{path}.host_network", expected, "true", f"remove it, {_ASK}")
    elif strictest_first.index(job.pod_level) > strictest_first.index(published.pod_level):
        expected = f"pods of the level {published.pod_level}, which is all that the namespace admits"
        yield FieldError(path, expected, job.pod_level, f"remove privileged and run_as_user, {_ASK}")
    elif published.host_network:
        wanted: Mapping[str, object] = {"run_as_user": job.run_as_user, "privileged": job.privileged or None}
        for name, value in wanted.items():
            if value is not None:
                expected = "nothing in a team with a job on the host's network, where every pod is the trainer's user"
                yield FieldError(f"{path}.{name}", expected, str(value), "remove it")


def _head(path: str, job: AnyJob, published: Published) -> Iterator[FieldError]:
    if job.pathways is None:
        return
    for name, got, most in (
        ("head_vcpus", job.pathways.head_vcpus, published.head_millicores // 1000),
        ("head_memory_gib", job.pathways.head_memory_gib, published.head_memory_mib // 1024),
    ):
        if got > most:
            expected = f"at most {most}, the largest head of the stack's own jobs in this namespace"
            yield FieldError(f"{path}.pathways.{name}", expected, str(got), f"lower it, {_ASK}")
