"""Rules of the slice groups, one by one: does GKE offer them, with that capacity."""

from collections.abc import Iterator

from infra.accelerators import all_shapes, meant, resolve
from infra.capacity import (
    CHIPS_OF_A_BLOCK,
    CHIPS_OF_A_SUB_BLOCK,
    GENERATION_WITH_BLOCKS,
    FlexStart,
    Queued,
    Reservation,
    nearest_with_flex_start,
    offers_flex_start,
)
from infra.faults import Fault
from infra.generations import FLEX_START_GENERATIONS
from infra.rules.draft import Draft, Written
from infra.stack_file import SliceGroup


def offered(path: str, group: Written) -> Fault | None:
    """The fault of a group whose slices do not exist."""
    generation, topology, machine_type = (group.get(key) for key in ("generation", "topology", "machine_type"))
    if not isinstance(generation, str) or not isinstance(topology, str | int):
        return None
    if isinstance(topology, bool) or not isinstance(machine_type, str | None):
        return None
    asked = " ".join(filter(None, (generation, str(topology), machine_type)))
    understood = meant(generation, str(topology))
    words = zip(("generation", "topology"), understood, (generation, topology), strict=True)
    other = ", ".join(f"{key}: {word}" for key, word, written in words if word != written)
    try:
        shape = resolve(*understood, machine_type)
    except ValueError as error:
        return Fault(path, "a slice that GKE offers", asked, str(error), other)
    if not other:
        return None
    fix = f"write it so: {shape.accelerator_type} has {shape.chips} chips on {shape.hosts} hosts"
    return Fault(path, "a slice that GKE offers", asked, fix, other)


def check(path: str, group: SliceGroup) -> Iterator[Fault]:
    """Faults of one slice group that GKE offers."""
    yield from _capacity(f"{path}.capacity", group)


def second_network(name: str, draft: Draft) -> Iterator[Fault]:
    """Faults of a group's wish for the second network interface."""
    group, path = draft.slices[name], f"slices.{name}.second_network"
    if not group.second_network:
        return
    if not group.shape.accelerator_nics:
        machines = sorted({shape.machine_type for shape in all_shapes() if shape.accelerator_nics})
        yield Fault(
            path,
            f"a machine type with a second network interface: {', '.join(machines)}",
            group.shape.machine_type,
            "remove it or choose another generation",
        )
    for job_path, job in draft.readable_jobs:
        if name in job.slices.groups and not job.host_network:
            yield Fault(
                path,
                "a job that uses the interfaces of its hosts, for pods of their own network never see the second",
                f"job {job.name} without host_network",
                f"write {job_path}.host_network: true or remove it",
            )


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
