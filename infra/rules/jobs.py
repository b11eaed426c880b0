"""Rules of the jobs of any kind: what they name, and whether their slices are there."""

from collections.abc import Iterator, Mapping
from graphlib import CycleError
from typing import cast

from infra.accelerators import SliceShape
from infra.capacity import FlexStart, Queued
from infra.cluster_queues import job_queue
from infra.faults import Fault, nearest
from infra.folders import TEAMS
from infra.jobs import ContainerJob, Job, TrainingJob, group_order
from infra.rules import containers, pathways, training
from infra.rules.draft import Draft, DraftJob, Shapes, Written, listed
from infra.stack_file import SliceGroup

_LONGEST_LABEL = 63
"""Kueue puts the name of a job's queue on its pods as a label
(https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set)."""


def check(draft: Draft, shapes: Shapes) -> Iterator[Fault]:
    """Faults of the jobs."""
    for entry in draft.jobs:
        yield from _names(entry, draft)
        yield from training.preset_named(entry)
        if entry.job:
            yield from _job(entry.path, entry.job, draft, shapes)
    yield from _orders(draft)


def _job(path: str, job: Job, draft: Draft, shapes: Shapes) -> Iterator[Fault]:
    if job.name == TEAMS:
        yield Fault(
            path, f"a name other than {TEAMS}, the folder of all teams in the bucket", job.name, "rename the job"
        )
    if len(queue := job_queue(job)) > _LONGEST_LABEL:
        expected = f"names of team and job that have at most {_LONGEST_LABEL - 1} characters together"
        yield Fault(path, expected, f"{len(queue) - 1}", "shorten one of them: the job's queue is named after both")
    yield from _mount(path, job, draft)
    yield from _secrets(path, job, draft)
    groups = {name: draft.slices[name] for name in job.slices.groups if name in shapes}
    for name, group in groups.items():
        yield from _job_slices(path, job, name, group)
    yield from _capacities(path, groups)
    shape = shapes.get(job.slices.group)
    if shape:
        yield from _fallback(path, job, groups, shape)
    yield from pathways.check(path, job, draft, shape)
    match job:
        case TrainingJob():
            yield from training.check(path, job, shape, draft.secrets)
        case ContainerJob():
            yield from containers.check(path, job, draft, shape)
        case _:
            raise AssertionError(job)


def _names(entry: DraftJob, draft: Draft) -> Iterator[Fault]:
    """What the job refers to, also when something else of the job could not be read."""
    team = entry.written.get("team")
    if isinstance(team, str) and draft.written_teams and team not in draft.written_teams:
        among = f"one of the teams {listed(draft.written_teams)}"
        yield Fault(
            f"{entry.path}.team", among, repr(team), "rename it or add the team", nearest(team, draft.written_teams)
        )
    for path, group in _written_groups(entry.path, entry.written.get("slices")):
        if isinstance(group, str) and draft.written_slices and group not in draft.written_slices:
            among = f"one of the slice groups {listed(draft.written_slices)}"
            yield Fault(path, among, repr(group), "rename it or add the group", nearest(group, draft.written_slices))


def _written_groups(path: str, slices: object) -> Iterator[tuple[str, object]]:
    """The groups that the job names, with their paths."""
    if not isinstance(slices, Mapping):
        return
    written = cast(Written, slices)
    yield f"{path}.slices.group", written.get("group")
    fallback = written.get("fallback")
    if isinstance(fallback, list):
        yield from ((f"{path}.slices.fallback", group) for group in cast(list[object], fallback))


def _orders(draft: Draft) -> Iterator[Fault]:
    """A team has one queue, and that tries its flavors in one order."""
    for team in draft.written_teams:
        wishes: list[tuple[str, ...]] = []
        for path, job in draft.readable_jobs:
            if job.team != team or len(set(job.slices.groups)) < len(job.slices.groups):
                continue
            wishes.append(job.slices.groups)
            try:
                group_order(wishes)
            except CycleError:
                wishes.pop()
                yield Fault(
                    f"{path}.slices.fallback",
                    f"groups in an order that goes with that of the other jobs of team {team}, for they share a queue",
                    ", then ".join(job.slices.groups),
                    "change the order, or give the job to another team",
                )


def _secrets(path: str, job: Job, draft: Draft) -> Iterator[Fault]:
    if unknown := sorted(set(job.secrets or ()) - set(draft.secrets)):
        among = f"names of the section secrets: {listed(draft.secrets)}"
        yield Fault(f"{path}.secrets", among, ", ".join(unknown), "rename it or add the secret")


def _mount(path: str, job: Job, draft: Draft) -> Iterator[Fault]:
    if job.host_network and draft.datasets and draft.datasets.mount:
        yield Fault(
            "datasets.mount",
            f"no mount beside {path}.host_network: such pods act as their node, and Cloud Storage FUSE as the pod",
            "both",
            "remove one of them; a trainer reads gs:// paths without a mount",
        )


def _job_slices(path: str, job: Job, name: str, group: SliceGroup) -> Iterator[Fault]:
    shape = group.shape
    if job.slices.count > group.count:
        yield Fault(
            f"{path}.slices.count",
            f"at most the {group.count} slices of {name}",
            str(job.slices.count),
            f"lower it or raise slices.{name}.count",
        )
    if job.slices.count > 1 and not shape.multi_host:
        yield Fault(
            f"{path}.slices.count",
            f"1, since a {shape.topology} of {shape.machine_type} has one host and GKE joins multi-host slices only",
            str(job.slices.count),
            f"lower it or choose a larger slices.{name}.topology",
        )
    if job.slices.count > 1 and isinstance(group.capacity, Queued):
        yield Fault(
            f"{path}.slices.count",
            f"1, since {name} is queued and a queued request brings the hosts of one slice",
            str(job.slices.count),
            f"lower it or write flex-start as slices.{name}.capacity.kind",
        )


def _fallback(path: str, job: Job, groups: Mapping[str, SliceGroup], shape: SliceShape) -> Iterator[Fault]:
    place = f"{path}.slices.fallback"
    repeated = sorted({name for name in job.slices.groups if job.slices.groups.count(name) > 1})
    if repeated:
        yield Fault(place, f"each group once, and not {path}.slices.group", ", ".join(repeated), "remove it there")
    for name, group in groups.items():
        if group.shape != shape:
            yield Fault(
                place,
                f"groups of {shape.generation} {shape.topology} on {shape.machine_type}, as {job.slices.group}",
                f"{name} of {group.generation} {group.topology} on {group.shape.machine_type}",
                "remove it there: the job is made for one shape of slice",
            )


def _capacities(path: str, groups: Mapping[str, SliceGroup]) -> Iterator[Fault]:
    flexible = [name for name, group in groups.items() if isinstance(group.capacity, FlexStart)]
    queued = [name for name, group in groups.items() if isinstance(group.capacity, Queued)]
    if flexible and queued:
        yield Fault(
            f"{path}.slices.fallback",
            "either queued or flex-start groups: pods that wait together ask for flex-start slices, and"
            " a queued request knows no other pods",
            f"{listed(queued)} (queued) beside {listed(flexible)} (flex-start)",
            "remove one of the two kinds",
        )
