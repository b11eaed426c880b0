"""Rules for a network or a cluster that exists already: what belongs to its owner and not to the stack file.

What only Google Cloud or the cluster can answer is checked in `infra.existing`, when the stack is planned.
"""

from collections.abc import Iterator, Sequence

from infra.stack.settings.errors import FieldError, show
from infra.stack.settings.jobs import AnyJob
from infra.stack.settings.schema import ExistingCluster, SliceGroup
from infra.stack.settings.sections import each
from infra.stack.settings.stack import Draft
from infra.stack.settings.values import is_zone
from workloads.spec import Spec

_OF_KUEUE = ("fair_sharing", "ready_minutes", "recovery_minutes", "requeueing")
"""Settings of the section `scheduling` that are in Kueue's own configuration."""
_OF_NODES = ("boot_disk_gb", "image_disk", "zone")
_REMOVE = "remove it"


def check(draft: Draft) -> Iterator[FieldError]:
    """Yield the errors of `network.existing`, `cluster.existing` and `slices.NAME.existing`."""
    found = draft.cluster.existing if draft.cluster else None
    if found is not None:
        yield from each(
            _place(draft, found),
            _own(draft, found),
            *(_heads(path, job, draft) for path, job in draft.readable_jobs),
        )
        if found.kueue == "found":
            whose = f"nothing, since Kueue in cluster {found.name} keeps its own configuration"
            yield from _written("scheduling", draft.scheduling, _OF_KUEUE[1:], whose)
    elif draft.network.existing is not None:
        whose = f"nothing, since subnet {draft.network.existing.subnet} has its ranges"
        yield from _written("network", draft.network, sorted(draft.network.model_fields_set - {"existing"}), whose)
    if found is not None or draft.network.existing is not None:
        yield from each(*(_no_second_network(f"slices.{name}", group) for name, group in draft.slices.items()))
    own = draft.cluster is not None and found is None
    yield from each(*(_group(f"slices.{name}", group, in_own_cluster=own) for name, group in draft.slices.items()))


def _no_second_network(path: str, group: SliceGroup) -> Iterator[FieldError]:
    if group.second_network:
        expected = "no second network, since the stack creates none next to an existing network"
        yield FieldError(f"{path}.second_network", expected, "true", _REMOVE)


def _own(draft: Draft, found: ExistingCluster) -> Iterator[FieldError]:
    assert draft.cluster
    name = found.name
    own = sorted(draft.cluster.model_fields_set - {"name", "existing"})
    yield from _written("cluster", draft.cluster, own, f"nothing, since cluster {name} is not the stack's")
    yield from _written(
        "network", draft.network, sorted(draft.network.model_fields_set), f"nothing, since cluster {name} has a network"
    )


def _place(draft: Draft, found: ExistingCluster) -> Iterator[FieldError]:
    region = draft.cloud.region if draft.cloud else None
    if region is not None and found.location != region and not is_zone(found.location, region):
        expected = f"{region} or one of its zones"
        yield FieldError("cluster.existing.location", expected, repr(found.location), "change it or cloud.region")


def _heads(path: str, job: AnyJob, draft: Draft) -> Iterator[FieldError]:
    if job.pathways is None:
        return
    if any(draft.slices[group].shape.multi_host for group in job.slices.groups if group in draft.slices):
        expected = "no Pathways on slices of several hosts, since its head needs the system nodes of a stack's cluster"
        yield FieldError(f"{path}.pathways", expected, f"job {job.name}", "remove it, or use a cluster of the stack")


def _group(path: str, group: SliceGroup, *, in_own_cluster: bool) -> Iterator[FieldError]:
    if not group.existing:
        return
    if in_own_cluster:
        expected = "false, since the cluster of the stack has no node pools of others"
        yield FieldError(f"{path}.existing", expected, "true", "remove it, or write cluster.existing")
    whose = "nothing, since the node pools exist already"
    yield from _written(path, group, [key for key in _OF_NODES if key in group.model_fields_set], whose)
    if group.capacity.on_request:
        expected = "on-demand, spot or a reservation, since node pools on request have no nodes to be found by"
        yield FieldError(f"{path}.capacity", expected, group.capacity.kind, "let the stack create the node pools")


def _written(path: str, section: Spec, keys: Sequence[str], expected: str) -> Iterator[FieldError]:
    for key in keys:
        if key in section.model_fields_set:
            yield FieldError(f"{path}.{key}", expected, show(getattr(section, key)), _REMOVE)
