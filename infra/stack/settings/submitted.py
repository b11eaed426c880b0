"""Reads jobs that a member of a team submits to a stack, or to a cluster that a caller describes.

The rules are those of the stack file, on the sections that the stack has published for the team. In addition, `up` fits
a team's namespace to the jobs of the stack file, but not to submitted ones, so their rights have limits."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, get_args

from pydantic import ValidationError

from infra.stack.capacity import Capacity
from infra.stack.names import SERVICE_ACCOUNT
from infra.stack.published import Published
from infra.stack.settings import rules_jobs, rules_teams
from infra.stack.settings.errors import FieldError, SettingsError, from_validation, refuse
from infra.stack.settings.jobs import AnyJob, PodLevel, Section
from infra.stack.settings.rules_cloud import check_offered
from infra.stack.settings.schema import Usd
from infra.stack.settings.sections import JOBS, Sections, each, entries_of, kind_of, read_draft
from infra.stack.settings.stack import Draft, FleetSpec, Settings, join_names
from infra.stack.settings.values import BucketName, DnsLabel, PinnedImage, TeamName
from workloads.spec import MAX_SLICES, Flag, Spec

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

    Raise SettingsError with all errors if the job is not valid.
    """
    sections = Sections(sections_of_stack)
    draft = read_draft(sections)
    if errors := [*sections.errors, *check(draft)]:
        raise SettingsError(dict.fromkeys(_of_member(f"{JOBS}.{name}.", error) for error in errors))
    own: dict[str, Any] = {name: section for name, section in vars(draft).items() if name in Settings.model_fields}
    jobs: dict[str, Any] = {"jobs": {job.name: job for _, job in draft.readable_jobs}, "secrets": {}}
    return Settings(**(own | jobs))


def _check(draft: Draft) -> Iterator[FieldError]:
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


_SLICE = frozenset(("generation", "topology"))
_STAND_INS: Mapping[str, object] = {
    "namespace": "stand-in",
    "queue": "stand-in",
    "generation": "v6e",
    "topology": "2x4",
    "capacity": "on-demand",
    "bucket": "stand-in",
    "image": f"stand-in@sha256:{64 * '0'}",
}
"""Values in place of missing and wrong ones, so that the job is checked in any case."""


class DescribedCluster(Spec):
    """What a JobSet needs to know of its cluster."""

    namespace: DnsLabel
    queue: TeamName
    """LocalQueue in the namespace."""
    generation: str
    topology: str
    capacity: Capacity
    bucket: BucketName
    image: PinnedImage | None = None
    """Trainer's image. Required by training jobs, and by container jobs with `check_slices`."""
    usd_per_chip_hour: Usd | None = None
    """Price of a chip. Default: unknown, and so is that of the job."""
    service_account: DnsLabel = SERVICE_ACCOUNT
    """Kubernetes service account of the pods."""
    restarts_slices: Flag = False
    """Whether JobSet has the feature gate RestartJob, as in `FleetSpec`."""

    def fleet(self, settings: Settings) -> FleetSpec:
        """Return the fleet of a job. `settings` are those that `read_described` returned."""
        return replace(FleetSpec.of(settings), bucket=self.bucket, restarts_slices=self.restarts_slices)


def read_described(name: str, section: Section, given: Mapping[str, object]) -> tuple[DescribedCluster, Settings]:
    """Return the cluster with the values `given`, and a stack whose only jobs are the job or the sweep `name`.

    Raises:
        SettingsError: lists all errors of the job, and those of the cluster, whose paths begin with the names of its
            values.
    """
    own_image = kind_of(section) == "container" and not section.get("check_slices")
    missing = [key for key in _STAND_INS if key not in given and not (own_image and key == "image")]
    errors = [FieldError(key, "a value", "nothing", "pass it") for key in missing]
    errors += [error for error in [check_offered("topology", given)] if error]
    try:
        DescribedCluster.model_validate({**_STAND_INS, **given})
    except ValidationError as error:
        errors += from_validation(error, "", DescribedCluster)
    wrong = {error.path.partition(".")[0] for error in errors}
    known = not wrong & _SLICE
    right = {key: value for key, value in given.items() if key not in wrong and (known or key not in _SLICE)}
    cluster = DescribedCluster.model_validate({**_STAND_INS, **right})
    try:
        settings = _read_job(name, section, cluster, known=known)
    except SettingsError as error:
        raise SettingsError([*errors, *error.errors]) from None
    refuse(errors)
    return cluster, settings


def _read_job(name: str, section: Section, cluster: DescribedCluster, *, known: bool) -> Settings:
    """Return the job of a cluster in a stack. Rules about its slices are only for `known` slices."""
    written = entries_of(section.get("slices")).get("group")
    group = written if isinstance(written, str) else "slices"
    shape = {**cluster.model_dump(mode="json", include={*_SLICE, "capacity"}), "count": MAX_SLICES}
    price = {group: cluster.usd_per_chip_hour} if cluster.usd_per_chip_hour else {}
    sections: dict[str, object] = {
        "cloud": {"project": "stand-in", "region": "us-east5", "zone": "us-east5-b"},
        "cluster": {"name": "stand-in"},
        "slices": {group: shape},
        "teams": {cluster.queue: {"namespace": cluster.namespace, "quota": {group: 0}}},
        "prices": {"usd_per_chip_hour": price},
        JOBS: {name: section},
    }

    def check(draft: Draft) -> Iterator[FieldError]:
        shapes = {group: draft.slices[group].shape} if known else {}
        return each(rules_jobs.check(draft, shapes), *(check_paused(*job) for job in draft.readable_jobs))

    try:
        return read_only_job(name, sections, check)
    except SettingsError as error:
        errors = [replace(found, fix=found.fix.replace(f"slices.{group}.", "")) for found in error.errors]
    place = f"{JOBS}.{name}.slices.group"
    raise SettingsError(replace(found, path=place) if found.path == f"slices.{group}" else found for found in errors)
