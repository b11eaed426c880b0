"""What must hold between the sections of a stack file.

Owns the cross-field rules, each a function from what could be read to the faults it finds, so that
a fault in one section never hides one in another. Types of single fields lie in `infra.stack_file`,
sizes of a job in `workloads.spec`.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from pydantic import ValidationError

from infra import job_spec, jobset
from infra.accelerators import SliceShape, resolve
from infra.capacity import (
    CHIPS_OF_A_BLOCK,
    CHIPS_OF_A_SUB_BLOCK,
    FLEX_START_GENERATIONS,
    GENERATION_WITH_BLOCKS,
    FlexStart,
    Queued,
    Reservation,
    nearest_with_flex_start,
    offers_flex_start,
)
from infra.faults import Fault, expectation, from_validation
from infra.flavors import KUEUE_NAMESPACE
from infra.stack_file import Cloud, Job, SliceGroup, Team
from workloads.spec import Preset, TrainingSpec, load_preset, preset_names

_RESERVED_NAMESPACES = frozenset({"default", KUEUE_NAMESPACE, jobset.JOBSET_NAMESPACE})


type Written = Mapping[str, object]
"""A section as it stands in the file, whatever is wrong with it."""


@dataclass(frozen=True)
class Draft:
    """What could be read of a stack file."""

    cloud: Cloud | None
    slices: Mapping[str, SliceGroup]
    """The valid ones."""
    written_slices: Mapping[str, Written]
    """All, as they are written, so that a job may name a group that has a fault of its own."""
    teams: Mapping[str, Team]
    written_teams: Mapping[str, Written]
    job: Job | None
    written_job: Written


def check(draft: Draft) -> Iterator[Fault]:
    """Every fault between the sections of `draft`."""
    yield from _zone(draft)
    shapes: dict[str, SliceShape] = {}
    for name, group in draft.written_slices.items():
        fault = _slice(f"slices.{name}", group)
        if fault:
            yield fault
        elif name in draft.slices:
            shapes[name] = draft.slices[name].shape
            yield from _capacity(f"slices.{name}.capacity", draft.slices[name])
    yield from _namespaces(draft)
    yield from _quotas(draft, shapes)
    yield from _job_names(draft)
    if draft.job:
        yield from _job(draft, draft.job, shapes)


def _slice(path: str, group: Written) -> Fault | None:
    generation, topology, machine_type = (group.get(key) for key in ("generation", "topology", "machine_type"))
    if not isinstance(generation, str) or not isinstance(topology, str) or not isinstance(machine_type, str | None):
        return None
    try:
        resolve(generation, topology, machine_type)
    except ValueError as error:
        asked = " ".join(filter(None, (generation, topology, machine_type)))
        return Fault(path, "a slice that GKE offers", asked, str(error))
    return None


def _capacity(path: str, group: SliceGroup) -> Iterator[Fault]:
    shape, capacity = group.shape, group.capacity
    if isinstance(capacity, FlexStart | Queued) and not offers_flex_start(shape):
        nearest = nearest_with_flex_start(shape)
        yield Fault(
            path,
            f"on-demand, spot or a reservation, since Compute Engine has flex-start for"
            f" {', '.join(FLEX_START_GENERATIONS)} alone",
            f"{capacity.kind} for {shape.generation}",
            f"write spot, or choose {nearest.generation} {nearest.topology}",
        )
    if isinstance(capacity, Reservation) and capacity.block:
        yield from _block(path, group, capacity)


def _block(path: str, group: SliceGroup, reservation: Reservation) -> Iterator[Fault]:
    if group.generation != GENERATION_WITH_BLOCKS:
        yield Fault(
            path,
            f"a reservation without block, since those of {GENERATION_WITH_BLOCKS} alone have blocks",
            f"block {reservation.block} for {group.generation}",
            "remove block and sub_block; the reservation's name is enough",
        )
        return
    part, chips = ("sub_block", CHIPS_OF_A_SUB_BLOCK) if reservation.sub_block else ("block", CHIPS_OF_A_BLOCK)
    if group.chips > chips:
        yield Fault(
            f"{path}.{part}",
            f"slices that fit the {chips} chips of a {part}",
            f"{group.chips} chips ({group.count} x {group.topology})",
            f"remove {part}, lower count or choose a smaller topology",
        )


def _zone(draft: Draft) -> Iterator[Fault]:
    if draft.cloud and not re.fullmatch(rf"{re.escape(draft.cloud.region)}-[a-z0-9]+", draft.cloud.zone):
        yield Fault(
            "cloud.zone",
            f"a zone of {draft.cloud.region}, such as {draft.cloud.region}-b",
            repr(draft.cloud.zone),
            "change cloud.zone or cloud.region",
        )


def _namespaces(draft: Draft) -> Iterator[Fault]:
    owners: dict[str, str] = {}
    for name, team in draft.teams.items():
        path = f"teams.{name}.namespace"
        if team.namespace in _RESERVED_NAMESPACES or team.namespace.startswith(("kube-", "gke-", "gmp-")):
            yield Fault(
                path, "a namespace of the team's own", repr(team.namespace), "choose another; this one is taken"
            )
        elif team.namespace in owners:
            other = owners[team.namespace]
            yield Fault(path, "a namespace for this team alone", repr(team.namespace), f"team {other} has it already")
        owners[team.namespace] = name


def _quotas(draft: Draft, shapes: Mapping[str, SliceShape]) -> Iterator[Fault]:
    given: defaultdict[str, int] = defaultdict(int)
    for name, team in draft.teams.items():
        for group, chips in team.quota.items():
            given[group] += chips
            if group not in draft.written_slices:
                among = f"slice groups among {_listed(draft.written_slices)}"
                yield Fault(f"teams.{name}.quota", among, repr(group), "rename it")
    for group in shapes:
        chips = draft.slices[group].chips
        if given[group] > chips:
            yield Fault(
                "teams",
                f"quotas of {group} that add up to at most its {chips} chips",
                str(given[group]),
                f"lower a team's quota or raise slices.{group}.count",
            )


def _job_names(draft: Draft) -> Iterator[Fault]:
    """What the job refers to, also when something else of the job could not be read."""
    team, slices, preset = (draft.written_job.get(key) for key in ("team", "slices", "preset"))
    group = cast(Written, slices).get("group") if isinstance(slices, Mapping) else None
    if isinstance(team, str) and team not in draft.written_teams:
        among = f"one of the teams {_listed(draft.written_teams)}"
        yield Fault("job.team", among, repr(team), "rename it or add the team")
    if isinstance(group, str) and group not in draft.written_slices:
        among = f"one of the slice groups {_listed(draft.written_slices)}"
        yield Fault("job.slices.group", among, repr(group), "rename it or add the group")
    if isinstance(preset, str) and preset not in preset_names():
        yield Fault("job.preset", f"one of the presets {', '.join(preset_names())}", repr(preset), "rename it")


def _job(draft: Draft, job: Job, shapes: Mapping[str, SliceShape]) -> Iterator[Fault]:
    shape = shapes.get(job.slices.group)
    if shape:
        yield from _job_slices(job, draft.slices[job.slices.group], shape)
        yield from _job_quota(job, draft.teams.get(job.team), shape)
    if job.preset in preset_names():
        yield from _job_sizes(job, shape, load_preset(job.preset))


def _job_slices(job: Job, group: SliceGroup, shape: SliceShape) -> Iterator[Fault]:
    if job.slices.count > group.count:
        yield Fault(
            "job.slices.count",
            f"at most the {group.count} slices of {job.slices.group}",
            str(job.slices.count),
            f"lower it or raise slices.{job.slices.group}.count",
        )
    if job.slices.count > 1 and not shape.multi_host:
        yield Fault(
            "job.slices.count",
            f"1, since a {shape.topology} of {shape.machine_type} has one host and GKE joins multi-host slices only",
            str(job.slices.count),
            f"lower it or choose a larger slices.{job.slices.group}.topology",
        )
    if job.slices.count > 1 and isinstance(group.capacity, Queued):
        yield Fault(
            "job.slices.count",
            f"1, since {job.slices.group} is queued and a queued request brings the hosts of one slice",
            str(job.slices.count),
            f"lower it or write flex-start as slices.{job.slices.group}.capacity.kind",
        )
    limit = jobset.longest_name(job.slices.count, shape.hosts)
    if len(job.name) > limit:
        yield Fault(
            "job.name",
            f"at most {limit} characters, for pods add to it",
            f"{len(job.name)} ({job.name!r})",
            "shorten it",
        )


def _job_quota(job: Job, team: Team | None, shape: SliceShape) -> Iterator[Fault]:
    needed = job.slices.count * shape.chips
    if team and team.quota.get(job.slices.group, 0) < needed:
        path = f"teams.{job.team}.quota.{job.slices.group}"
        yield Fault(
            path,
            f"at least the {needed} chips of job {job.name}",
            str(team.quota.get(job.slices.group, "nothing")),
            f"raise it to {needed} or lower job.slices.count",
        )


def _job_sizes(job: Job, shape: SliceShape | None, preset: Preset) -> Iterator[Fault]:
    try:
        training = job_spec.training_spec(job, preset)
    except ValidationError as error:
        yield from from_validation(error, "job.training", TrainingSpec)
        return
    if shape:
        yield from _job_fit(job, shape, preset, training)


def _job_fit(job: Job, shape: SliceShape, preset: Preset, training: TrainingSpec) -> Iterator[Fault]:
    try:
        job_spec.assemble(job, shape, preset, training, storage_root="gs://bucket")
    except ValidationError as error:
        for detail in error.errors():
            yield Fault(
                "job",
                f"sizes that fit {job.slices.count} x {shape.generation} {shape.topology}",
                expectation(detail["msg"]),
                "change job.mesh, job.training or job.preset",
            )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "(there are none)"
