"""Rules of the job: what it names and whether it fits its slices."""

from collections.abc import Iterator, Mapping
from typing import cast

from pydantic import ValidationError

from infra import job_spec, jobset
from infra.accelerators import SliceShape
from infra.capacity import Queued
from infra.faults import Fault, expectation, from_validation
from infra.rules.draft import Draft, Shapes, Written, listed
from infra.stack_file import Job, SliceGroup
from workloads.spec import Preset, TrainingSpec, load_preset, preset_names


def check(draft: Draft, shapes: Shapes) -> Iterator[Fault]:
    """Faults of the section `job`."""
    yield from _names(draft)
    if draft.job:
        yield from _job(draft, draft.job, shapes)


def _names(draft: Draft) -> Iterator[Fault]:
    """What the job refers to, also when something else of the job could not be read."""
    team, slices, preset = (draft.written_job.get(key) for key in ("team", "slices", "preset"))
    group = cast(Written, slices).get("group") if isinstance(slices, Mapping) else None
    if isinstance(team, str) and team not in draft.written_teams:
        among = f"one of the teams {listed(draft.written_teams)}"
        yield Fault("job.team", among, repr(team), "rename it or add the team")
    if isinstance(group, str) and group not in draft.written_slices:
        among = f"one of the slice groups {listed(draft.written_slices)}"
        yield Fault("job.slices.group", among, repr(group), "rename it or add the group")
    if isinstance(preset, str) and preset not in preset_names():
        yield Fault("job.preset", f"one of the presets {', '.join(preset_names())}", repr(preset), "rename it")


def _job(draft: Draft, job: Job, shapes: Shapes) -> Iterator[Fault]:
    shape = shapes.get(job.slices.group)
    if shape:
        yield from _job_slices(job, draft.slices[job.slices.group], shape)
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
