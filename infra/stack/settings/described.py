"""Reads a job for a cluster that no stack has published: a few values describe it.

The job must obey the rules of submitted jobs, except those of a namespace that a stack file limits."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import AfterValidator, ValidationError

from infra.stack.capacity import Capacity
from infra.stack.fleet import FleetSpec
from infra.stack.names import SERVICE_ACCOUNT
from infra.stack.published import Published
from infra.stack.settings import rules_jobs
from infra.stack.settings.errors import FieldError, SettingsError, from_validation
from infra.stack.settings.jobs import Section
from infra.stack.settings.rules_cloud import check_offered
from infra.stack.settings.schema import Cloud, Cluster, SliceGroup, Team
from infra.stack.settings.sections import JOBS, entries_of, kind_of
from infra.stack.settings.stack import Settings
from infra.stack.settings.submitted import read_submitted
from infra.stack.settings.values import MOST_INT32, BucketName, DnsLabel, PinnedImage, TeamName
from infra.stack.zones import ZONES, is_zone
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


def _zone(text: str) -> str:
    region = text.rpartition("-")[0]
    if region in ZONES and is_zone(text, region):
        return text
    raise ValueError("a zone of Google Cloud, such as us-east5-b")


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
    """Trainer's image. Required by training jobs, and by container jobs without an image or with `check_slices`."""
    zone: Annotated[str, AfterValidator(_zone)] | None = None
    """Zone of the slices. Default: unknown, and so is the price."""
    service_account: DnsLabel = SERVICE_ACCOUNT
    """Kubernetes service account of the pods."""
    restarts_slices: Flag = False
    """Whether JobSet has the feature gate RestartJob, as in `FleetSpec`."""

    def fleet(self, settings: Settings) -> FleetSpec:
        """Return the fleet of a job. `settings` are those that `read_described` returned."""
        return replace(FleetSpec.of(settings), bucket=self.bucket, restarts_slices=self.restarts_slices)

    def published(self, group: str, *, host_network: bool) -> Published:
        """Return what a stack with one team and enough slices of one group would publish, without limits."""
        slices = SliceGroup(
            generation=self.generation, topology=self.topology, count=MAX_SLICES, capacity=self.capacity
        )
        quota: dict[str, object] = {group: slices.chips}
        zone = self.zone or ""
        return Published(
            stack="",
            team=self.queue,
            image=self.image,
            bucket=self.bucket,
            cloud=Cloud(project="stand-in", region=zone.rpartition("-")[0] or "us-east5", zone=zone),
            cluster=Cluster(name="stand-in"),
            slices={group: slices},
            teams={self.queue: Team.model_validate({"namespace": self.namespace, "quota": quota})},
            pod_level="privileged",
            host_network=host_network,
            head_millicores=MOST_INT32,
            head_memory_mib=MOST_INT32,
        )


def read_cluster(given: Mapping[str, object], section: Section) -> tuple[DescribedCluster, list[FieldError]]:
    """Return the cluster of a job, with stand-ins for missing and wrong values, and the errors of these.

    The paths of the errors begin with the name of the value. `section` is the job's, which may need no image.
    """
    own_image = kind_of(section) == "container" and "image" in section and not section.get("check_slices")
    missing = [name for name in _STAND_INS if name not in given and not (own_image and name == "image")]
    errors = [FieldError(name, "a value", "nothing", "pass it") for name in missing]
    if offered := check_offered("topology", given):
        errors.append(offered)
    try:
        DescribedCluster.model_validate({**_STAND_INS, **given})
    except ValidationError as error:
        errors += from_validation(error, "", DescribedCluster)
    wrong = {each.path.partition(".")[0] for each in errors}
    # A generation may be wrong only with this topology.
    wrong |= _SLICE if wrong & _SLICE else set()
    right = {name: value for name, value in given.items() if name not in wrong}
    return DescribedCluster.model_validate({**_STAND_INS, **right}), errors


def read_described(name: str, section: Section, cluster: DescribedCluster, wrong: Sequence[FieldError]) -> Settings:
    """Return a stack with the job or the sweep `name` as its only jobs. `wrong` has the errors of the cluster.

    Raises:
        SettingsError: the job is not valid; lists all errors that do not depend on a wrong value of the cluster.
    """
    written = entries_of(section.get("slices")).get("group")
    group = written if isinstance(written, str) else "slices"
    published = cluster.published(group, host_network=section.get("host_network") is True)
    # Rules between a job and its slices only apply to known slices. No rule needs a price.
    shapes = {} if _SLICE & {each.path for each in wrong} else {group: published.slices[group].shape}
    try:
        return read_submitted(name, section, published, lambda draft: rules_jobs.check(draft, shapes))
    except SettingsError as error:
        errors = [replace(each, fix=each.fix.replace(f"slices.{group}.", "")) for each in error.errors]
    place = f"{JOBS}.{name}.slices.group"
    raise SettingsError(replace(each, path=place) if each.path == f"slices.{group}" else each for each in errors)
