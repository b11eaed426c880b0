"""Kinds of TPU capacity: where the chips of a slice group come from, and what follows for billing, nodes and Kueue."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self, get_args

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from infra.stack.names import QUEUED_LABEL, SECONDS_PER_HOUR, TPU_RESOURCE
from infra.stack.settings.values import DnsLabel, ProjectName
from infra.stack.tpu import CHIPS_PER_BLOCK, CHIPS_PER_SUB_BLOCK
from workloads.spec import Number, Spec

_MIN_RUN_SECONDS = 600
_MAX_RUN_SECONDS = 7 * 24 * SECONDS_PER_HOUR


def _run_time(hours: float) -> float:
    if not _MIN_RUN_SECONDS <= hours * SECONDS_PER_HOUR <= _MAX_RUN_SECONDS:
        raise ValueError("hours from 0.17 (10 minutes) to 168 (7 days), the run times that Compute Engine accepts")
    return hours


RunHours = Annotated[Number, AfterValidator(_run_time)]


class _Kind(Spec):
    """A kind of capacity. By default its chips exist and are billed from `up` to `destroy`."""

    on_request: ClassVar[bool] = False
    """Whether chips arrive when a job requests them, are billed while they exist, and leave after a set time."""
    queued: ClassVar[bool] = False
    """Whether Kueue requests the chips by an admission check and starts no pod before a slice has all its hosts."""
    spot: ClassVar[bool] = False
    full_price: ClassVar[bool] = False
    """Whether the price must be known, because the chips are bought on demand without a contract."""
    quota: ClassVar[Literal["on-demand", "preemptible"] | None] = None
    """Compute Engine quota that the chips count against."""
    no_list_price: ClassVar[str | None] = None
    """Why the table of list prices cannot contain it; `None` if it can."""

    @property
    def billed(self) -> Literal["standing", "on-request"]:
        return "on-request" if self.on_request else "standing"

    @property
    def requested_by_pods(self) -> bool:
        """Return whether waiting pods are the request for chips, so that they must not be evicted while they wait."""
        return self.on_request and not self.queued

    @property
    def node_labels(self) -> Mapping[str, str]:
        """Return the labels that its nodes need and GKE does not set."""
        return {QUEUED_LABEL: "true"} if self.queued else {}

    @property
    def taints(self) -> Mapping[str, str]:
        """Return the values of the taints that GKE gives its nodes, by key; the effect is `NoSchedule`."""
        return {TPU_RESOURCE: "present", **self.node_labels}

    @property
    def run_seconds(self) -> int | None:
        """Return the seconds after which a node is taken back; `None` if it stays."""
        return None

    @property
    def reserved(self) -> str | None:
        """Return the name of the reservation that the chips belong to."""
        return None

    @property
    def part(self) -> tuple[Literal["block", "sub_block"], int] | None:
        """Return the part of a reservation that contains all slices of the group, and the part's number of chips."""
        return None

    def reservation(self, own_project: str) -> str | None:
        """Return the reservation in the form that a node pool expects."""
        return None


class OnDemand(_Kind):
    """Regular chips, kept as long as the pool exists."""

    kind: Literal["on-demand"]
    full_price: ClassVar = True
    quota: ClassVar = "on-demand"


class Spot(_Kind):
    """Idle chips at a lower price, which Google may reclaim at any time."""

    kind: Literal["spot"]
    spot: ClassVar = True
    quota: ClassVar = "preemptible"


class Reservation(_Kind):
    """Chips that are already reserved. A used-up reservation does not fall back to other capacity."""

    kind: Literal["reservation"]
    name: DnsLabel
    project: ProjectName | None = None
    """Project that owns a shared reservation. Default: the stack's own project."""
    block: DnsLabel | None = None
    """Block of the reservation that contains all slices of the group. Default: any."""
    sub_block: DnsLabel | None = None
    """Part of the block: one cube of 64 chips. Default: any."""
    # Only with a commitment, at its discount: https://docs.cloud.google.com/tpu/docs/consumption-options.
    no_list_price: ClassVar = "the price of a reservation is agreed with Google"

    @model_validator(mode="after")
    def _sub_block_lies_in_a_block(self) -> Self:
        if self.sub_block and not self.block:
            raise ValueError("a block that contains the sub_block")
        return self

    @property
    def reserved(self) -> str:
        return self.name

    @property
    def part(self) -> tuple[Literal["block", "sub_block"], int] | None:
        if self.sub_block:
            return "sub_block", CHIPS_PER_SUB_BLOCK
        return ("block", CHIPS_PER_BLOCK) if self.block else None

    def reservation(self, own_project: str) -> str:
        """Return the reservation in the form that a node pool expects."""
        if not self.project and not self.block:
            return self.name
        parts = [f"projects/{self.project or own_project}/reservations/{self.name}"]
        parts += [f"reservationBlocks/{self.block}"] if self.block else []
        parts += [f"reservationSubBlocks/{self.sub_block}"] if self.sub_block else []
        return "/".join(parts)


class _OnRequest(_Kind):
    """Chips that are requested when a job needs them and returned after a set time."""

    max_run_hours: RunHours
    """Hours after which each node is taken back. The job then waits for new nodes."""
    on_request: ClassVar = True
    quota: ClassVar = "preemptible"

    @property
    def run_seconds(self) -> int:
        return round(self.max_run_hours * SECONDS_PER_HOUR)


class FlexStart(_OnRequest):
    """The autoscaler requests chips as soon as pods wait for them."""

    kind: Literal["flex-start"]
    no_list_price: ClassVar = "no list price of flex-start is known"


class Queued(_OnRequest):
    """Like flex-start, but Kueue requests the chips and starts no pod before a slice has all its hosts."""

    kind: Literal["queued"]
    queued: ClassVar = True
    no_list_price: ClassVar = "no list price of flex-start, by which queued chips come, is known"


_OTHER_WORDS = {
    "preemptible": "spot",
    "regular": "on-demand",
    "standard": "on-demand",
    "ondemand": "on-demand",
    "reserved": "{kind: reservation, name: NAME}",
    "dws": "{kind: flex-start, max_run_hours: HOURS}",
}
"""Kinds by the words that other Google products and documents use for them."""
_KINDS: tuple[type[_Kind], ...] = (OnDemand, Spot, Reservation, FlexStart, Queued)


def _as_mapping(written: object) -> object:
    """Convert a capacity that is written as one word because it needs no settings."""
    kind = written.get("kind") if isinstance(written, dict) else written
    if isinstance(kind, str) and (meant := _OTHER_WORDS.get(kind.lower())):
        kinds = ", ".join(repr(get_args(model.model_fields["kind"].annotation)[0]) for model in _KINDS)
        raise PydanticCustomError("other_word", "one of {kinds}", {"meant": meant, "kinds": kinds})
    return {"kind": written} if isinstance(written, str) else written


CapacityKind = OnDemand | Spot | Reservation | FlexStart | Queued
Capacity = Annotated[
    CapacityKind,
    Field(discriminator="kind"),
    BeforeValidator(_as_mapping, json_schema_input_type=Literal["on-demand", "spot"] | CapacityKind),
]
