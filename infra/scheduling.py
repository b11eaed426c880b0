"""How the queues share chips and where jobs are placed.

Owns the settings in Kueue's terms: quota, limits, preemption, requeueing, placement. Rendering them
is the business of `infra.flavors`, `infra.cluster_queues`, `infra.operators` and `infra.placement`.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from workloads.spec import PositiveInt, Spec, WholeNumber

Chips = Annotated[WholeNumber, Field(ge=0)]
Placement = Literal["exclusive-topology", "topology-aware"]


class Quota(Spec):
    """A team's share of one slice group. May be written as its number of chips alone."""

    chips: Chips
    """The team's own (Kueue's nominal quota). 0: it may only borrow idle ones."""
    borrowing_limit: Chips | None = None
    """Most chips of other teams that it may use while they are idle. Unset: all."""
    lending_limit: Chips | None = None
    """Most of its own chips that others may use while they are idle. Unset: all."""


def _as_mapping(written: object) -> object:
    return written if isinstance(written, Mapping) else {"chips": written}


TeamQuota = Annotated[Quota, BeforeValidator(_as_mapping)]


class Preemption(Spec):
    """Whom a team's waiting job may push out."""

    within_team: Literal["never", "lower-priority", "lower-or-newer-equal-priority"] = "lower-priority"
    reclaim: Literal["never", "lower-priority", "any"] = "any"
    """Jobs of other teams that run on chips lent by this one."""
    while_borrowing: Literal["never", "lower-priority"] = "never"
    """Jobs of other teams on their own chips, for a job that would borrow them. Not with fair sharing."""


class Requeueing(Spec):
    """When a job whose pods did not come up in time is tried again."""

    limit: Annotated[WholeNumber, Field(ge=0)] | None = None
    """Times; then its workload is deactivated and a person must look. Unset: for ever."""
    base_seconds: PositiveInt = 60
    """Pause after the first time; it doubles with each one."""
    max_seconds: PositiveInt = 3600


class Scheduling(Spec):
    """What holds for all queues."""

    placement: Placement = "exclusive-topology"
    """Who keeps a slice of the job in one node pool: JobSet's exclusive topology, or Kueue's
    topology-aware scheduling, which also counts the free hosts before it admits a job. Before a change
    on a live stack let the jobs end, or drain the teams: Kueue forgets the chips of jobs that run on."""
    fair_sharing: bool = False
    """Idle chips go to the team that uses the smallest share for its weight, not to the first that asks."""
    ready_minutes: PositiveInt | None = None
    """How long an admitted job may be without all its pods. Unset: 30 minutes, or a week where a
    group's chips come by flex-start, since waiting pods are the request for them."""
    recovery_minutes: PositiveInt | None = None
    """How long a running job may be without some of its pods. Unset: an hour, or a week as above."""
    requeueing: Requeueing = Requeueing()
