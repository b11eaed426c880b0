"""Rules of the job: what it names and whether it fits its slices."""

from collections.abc import Iterator, Mapping
from typing import cast

from pydantic import ValidationError

from infra import job_spec
from infra.accelerators import SliceShape
from infra.capacity import FlexStart, Queued
from infra.faults import Fault, expectation, from_validation
from infra.rules.draft import Draft, Shapes, Written, listed
from infra.stack_file import Job, SliceGroup
from workloads.spec import Preset, TokenFileSpec, TrainingSpec, load_preset, preset_names

_ANY_DATA = TokenFileSpec(source="token-file", path="gs://bucket/tokens", held_out_fraction=0.01)


def check(draft: Draft, shapes: Shapes) -> Iterator[Fault]:
    """Faults of the section `job`."""
    yield from _names(draft)
    if draft.job:
        yield from _job(draft, draft.job, shapes)
        yield from _mount(draft, draft.job)


def _names(draft: Draft) -> Iterator[Fault]:
    """What the job refers to, also when something else of the job could not be read."""
    team, preset = (draft.written_job.get(key) for key in ("team", "preset"))
    if isinstance(team, str) and team not in draft.written_teams:
        among = f"one of the teams {listed(draft.written_teams)}"
        yield Fault("job.team", among, repr(team), "rename it or add the team")
    for path, group in _written_groups(draft.written_job.get("slices")):
        if isinstance(group, str) and group not in draft.written_slices:
            among = f"one of the slice groups {listed(draft.written_slices)}"
            yield Fault(path, among, repr(group), "rename it or add the group")
    if isinstance(preset, str) and preset not in preset_names():
        yield Fault("job.preset", f"one of the presets {', '.join(preset_names())}", repr(preset), "rename it")


def _written_groups(slices: object) -> Iterator[tuple[str, object]]:
    """The groups that the job names, with their paths."""
    if not isinstance(slices, Mapping):
        return
    written = cast(Written, slices)
    yield "job.slices.group", written.get("group")
    fallback = written.get("fallback")
    if isinstance(fallback, list):
        yield from (("job.slices.fallback", group) for group in cast(list[object], fallback))


def _job(draft: Draft, job: Job, shapes: Shapes) -> Iterator[Fault]:
    shape = shapes.get(job.slices.group)
    groups = {name: draft.slices[name] for name in job.slices.groups if name in shapes}
    for name, group in groups.items():
        yield from _job_slices(job, name, group)
    yield from _capacities(groups)
    if shape:
        yield from _fallback(job, groups, shape)
    if job.preset in preset_names():
        preset = load_preset(job.preset)
        yield from _data(job, preset)
        yield from _job_sizes(job, shape, preset)


def _data(job: Job, preset: Preset) -> Iterator[Fault]:
    if not (job.data or preset.data):
        yield Fault(
            "job.data",
            f"what to train on, since the preset {job.preset} has no data of its own",
            "nothing",
            "add job.data to the stack file; docs/data.md says how to make a token folder",
        )


def _mount(draft: Draft, job: Job) -> Iterator[Fault]:
    if job.host_network and draft.datasets and draft.datasets.mount:
        yield Fault(
            "datasets.mount",
            "no mount beside job.host_network: such pods act as their node, and Cloud Storage FUSE as the pod",
            "both",
            "remove one of them; a trainer reads gs:// paths without a mount",
        )


def _job_slices(job: Job, name: str, group: SliceGroup) -> Iterator[Fault]:
    shape = group.shape
    if job.slices.count > group.count:
        yield Fault(
            "job.slices.count",
            f"at most the {group.count} slices of {name}",
            str(job.slices.count),
            f"lower it or raise slices.{name}.count",
        )
    if job.slices.count > 1 and not shape.multi_host:
        yield Fault(
            "job.slices.count",
            f"1, since a {shape.topology} of {shape.machine_type} has one host and GKE joins multi-host slices only",
            str(job.slices.count),
            f"lower it or choose a larger slices.{name}.topology",
        )
    if job.slices.count > 1 and isinstance(group.capacity, Queued):
        yield Fault(
            "job.slices.count",
            f"1, since {name} is queued and a queued request brings the hosts of one slice",
            str(job.slices.count),
            f"lower it or write flex-start as slices.{name}.capacity.kind",
        )


def _fallback(job: Job, groups: Mapping[str, SliceGroup], shape: SliceShape) -> Iterator[Fault]:
    path = "job.slices.fallback"
    repeated = sorted({name for name in job.slices.groups if job.slices.groups.count(name) > 1})
    if repeated:
        yield Fault(path, "each group once, and not job.slices.group", ", ".join(repeated), "remove it there")
    for name, group in groups.items():
        if group.shape != shape:
            yield Fault(
                path,
                f"groups of {shape.generation} {shape.topology} on {shape.machine_type}, as {job.slices.group}",
                f"{name} of {group.generation} {group.topology} on {group.shape.machine_type}",
                "remove it there: the job is made for one shape of slice",
            )


def _capacities(groups: Mapping[str, SliceGroup]) -> Iterator[Fault]:
    flexible = [name for name, group in groups.items() if isinstance(group.capacity, FlexStart)]
    queued = [name for name, group in groups.items() if isinstance(group.capacity, Queued)]
    if flexible and queued:
        yield Fault(
            "job.slices.fallback",
            "either queued or flex-start groups: pods that wait together ask for flex-start slices, and"
            " a queued request knows no other pods",
            f"{listed(queued)} (queued) beside {listed(flexible)} (flex-start)",
            "remove one of the two kinds",
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
    # Sizes are judged also while there is no data yet.
    with_data = job if job.data or preset.data else job.model_copy(update={"data": _ANY_DATA})
    try:
        job_spec.assemble(with_data, shape, preset, training, storage_root="gs://bucket")
    except ValidationError as error:
        for detail in error.errors():
            yield Fault(
                "job",
                f"sizes that fit {job.slices.count} x {shape.generation} {shape.topology}",
                expectation(detail["msg"]),
                "change job.slices, job.mesh, job.training or job.preset",
            )
