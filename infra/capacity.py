"""Where the chips of a slice group come from.

Owns the kinds of capacity, their settings, and what Compute Engine asks of each. How a kind is
declared is the business of `infra.slices`; what Kueue has to do for it, of `infra.queues`.

Source: https://cloud.google.com/kubernetes-engine/docs/how-to/tpu-all-capacity-mode for blocks of a reservation.
"""

from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from infra.settings.values import DnsLabel, ProjectName
from infra.tpu import FLEX_START_GENERATIONS, SliceShape, all_shapes
from workloads.spec import Number, Spec

CHIPS_OF_A_SUB_BLOCK = 64
CHIPS_OF_A_BLOCK = 144 * CHIPS_OF_A_SUB_BLOCK
GENERATION_WITH_BLOCKS = "7x"

_SECONDS_PER_HOUR = 3600
_LEAST_RUN_SECONDS = 600
_LONGEST_RUN_SECONDS = 7 * 24 * _SECONDS_PER_HOUR


def _run_time(hours: float) -> float:
    if not _LEAST_RUN_SECONDS <= hours * _SECONDS_PER_HOUR <= _LONGEST_RUN_SECONDS:
        raise ValueError("hours from 0.17 (10 minutes) to 168 (7 days), the run times that Compute Engine grants")
    return hours


RunHours = Annotated[Number, AfterValidator(_run_time)]


class OnDemand(Spec):
    """Chips of the common stock, kept as long as the pool exists."""

    kind: Literal["on-demand"]


class Spot(Spec):
    """Idle chips at a lower price, which Google may take back at any time."""

    kind: Literal["spot"]


class Reservation(Spec):
    """Chips that are reserved already. Nothing falls back to other capacity when they are used up."""

    kind: Literal["reservation"]
    name: DnsLabel
    project: ProjectName | None = None
    """Owner of a shared reservation. Unset: the stack's own project."""
    block: DnsLabel | None = None
    """Part of the reservation that all slices of the group lie in."""
    sub_block: DnsLabel | None = None
    """Part of the block: one cube of 64 chips."""

    @model_validator(mode="after")
    def _sub_block_lies_in_a_block(self) -> Self:
        if self.sub_block and not self.block:
            raise ValueError("a block to which the sub_block belongs")
        return self

    def resource(self, own_project: str) -> str:
        """The reservation as a node pool names it."""
        if not self.project and not self.block:
            return self.name
        parts = [f"projects/{self.project or own_project}/reservations/{self.name}"]
        parts += [f"reservationBlocks/{self.block}"] if self.block else []
        parts += [f"reservationSubBlocks/{self.sub_block}"] if self.sub_block else []
        return "/".join(parts)


class _FromZero(Spec):
    """Chips that are asked for when a job needs them and are given back after a set time."""

    max_run_hours: RunHours
    """Each node is taken back this long after it came; the job then waits for new ones."""

    @property
    def max_run_seconds(self) -> int:
        """The time in the unit of the APIs."""
        return round(self.max_run_hours * _SECONDS_PER_HOUR)


class FlexStart(_FromZero):
    """The autoscaler asks for chips as soon as pods wait for them."""

    kind: Literal["flex-start"]


class Queued(_FromZero):
    """Flex-start, but Kueue asks, and starts no pod before it has all hosts of a slice."""

    kind: Literal["queued"]


_OTHER_WORDS = {
    "preemptible": "spot",
    "regular": "on-demand",
    "standard": "on-demand",
    "ondemand": "on-demand",
    "reserved": "{kind: reservation, name: NAME}",
    "dws": "{kind: flex-start, max_run_hours: HOURS}",
}
"""Kinds by the words that Google's other products and documents have for them."""


_KINDS: tuple[type[Spec], ...] = (OnDemand, Spot, Reservation, FlexStart, Queued)


def _as_mapping(written: object) -> object:
    """A capacity that needs no settings may be written as a word."""
    kind = written.get("kind") if isinstance(written, dict) else written
    if isinstance(kind, str) and (meant := _OTHER_WORDS.get(kind.lower())):
        kinds = ", ".join(repr(get_args(model.model_fields["kind"].annotation)[0]) for model in _KINDS)
        raise PydanticCustomError("other_word", "one of {kinds}", {"meant": meant, "kinds": kinds})
    return {"kind": written} if isinstance(written, str) else written


Capacity = Annotated[
    OnDemand | Spot | Reservation | FlexStart | Queued, Field(discriminator="kind"), BeforeValidator(_as_mapping)
]


def offers_flex_start(shape: SliceShape) -> bool:
    """Whether Compute Engine grants such slices by flex-start, queued or not."""
    return shape.generation in FLEX_START_GENERATIONS


def nearest_with_flex_start(shape: SliceShape) -> SliceShape:
    """The slice most like `shape` that can be had by flex-start."""
    offered = (other for other in all_shapes() if offers_flex_start(other) and other.multi_host == shape.multi_host)
    return min(
        offered,
        key=lambda other: (other.topology != shape.topology, abs(other.chips - shape.chips), -other.chips_per_host),
    )
