"""Reads a job for a cluster that no stack has published: a few values describe it.

The job must obey the rules of submitted jobs, except those of a namespace that a stack file limits."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pydantic import ValidationError

from infra.stack.capacity import Capacity
from infra.stack.fleet import FleetSpec
from infra.stack.names import SERVICE_ACCOUNT
from infra.stack.settings import rules_jobs
from infra.stack.settings.errors import FieldError, SettingsError, from_validation, refuse
from infra.stack.settings.jobs import Section
from infra.stack.settings.partial import each
from infra.stack.settings.rules_cloud import check_offered
from infra.stack.settings.schema import Usd
from infra.stack.settings.sections import JOBS, entries_of, kind_of
from infra.stack.settings.stack import Draft, Settings
from infra.stack.settings.submitted import check_paused, read_only_job
from infra.stack.settings.values import BucketName, DnsLabel, PinnedImage, TeamName
from workloads.spec import MAX_SLICES, Flag, Spec

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
