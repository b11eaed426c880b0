"""The price of a job on any cluster, from the labels of its flavors and nodes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.review.admission.situation import PodSet
from infra.stack.cost import list_rate
from infra.stack.manifests import Object
from infra.stack.names import ACCELERATOR_LABEL, FLEX_START_LABEL, RESERVATION_LABEL, SPOT_LABEL, ZONE_LABEL
from infra.stack.tpu import generations

_UNLISTED = {
    RESERVATION_LABEL: "the price of a reservation is agreed with Google",
    FLEX_START_LABEL: "flex-start has no list price",
}


class UnknownPriceError(ValueError):
    """Raised for pods without a known price. The message says why."""


@dataclass(frozen=True)
class Price:
    """The price of a job."""

    usd_per_hour: float | None
    """`None` if it is unknown."""
    basis: str
    """Where it is from, or why it is unknown."""


def price(
    placed: Sequence[tuple[PodSet, str]],
    selectors: Mapping[str, Mapping[str, str]],
    flavors: Sequence[Object],
    nodes: Sequence[Object],
    refused: str | None,
) -> Price:
    """Return the price of pod sets, each on a flavor.

    `selectors` are the node selectors by pod set, and `refused` the right that this user lacks to read nodes.
    """
    if not placed:
        return Price(None, "it has no flavor yet")
    usd, basis = 0.0, list[str]()
    of_flavor = {each["metadata"]["name"]: each.get("spec", {}).get("nodeLabels", {}) for each in flavors}
    of_nodes = [node["metadata"].get("labels", {}) for node in nodes]
    why_none = f"you may not {refused}" if refused else "the cluster has no such node now"
    try:
        for pods, flavor in placed:
            labels = {**selectors[pods.name], **of_flavor[flavor]}
            found = [each for each in of_nodes if labels.items() <= each.items()]
            usd_per_chip, text = _rate(flavor, [labels, *found], why_none)
            usd += pods.chips * usd_per_chip
            basis.append(f"{pods.chips} chips at {text}")
    except UnknownPriceError as error:
        return Price(None, str(error))
    return Price(round(usd, 4), "; ".join(basis))


def _rate(flavor: str, labels: Sequence[Mapping[str, str]], why_none: str) -> tuple[float, str]:
    """Return the list price of a chip with a text about it; `labels` are those of the flavor, then of its nodes.

    Raise UnknownPriceError with the reason if it is unknown.
    """

    def only(label: str, what: str) -> str:
        found = sorted({each[label] for each in labels if label in each})
        if len(found) != 1:
            why = f"its nodes have several: {', '.join(found)}" if found else why_none
            raise UnknownPriceError(f"{what} of flavor {flavor} is not known ({why})")
        return found[0]

    accelerator = only(ACCELERATOR_LABEL, "the TPU generation")
    names = {each.accelerator: each.name for each in generations()}
    if accelerator not in names:
        raise UnknownPriceError(f"no price of {accelerator} is known")
    for label, why in _UNLISTED.items():
        if any(label in each for each in labels):
            raise UnknownPriceError(why)
    zone = only(ZONE_LABEL, "the zone")
    _, *nodes = labels
    kinds = {"spot" if each.get(SPOT_LABEL) == "true" else "on-demand" for each in nodes or labels}
    if len(kinds) > 1:
        raise UnknownPriceError(f"some nodes of {flavor} are spot and some are not")
    kind = kinds.pop()
    rate = list_rate(names[accelerator], zone.rpartition("-")[0], zone, kind)
    if rate.usd_per_chip_hour is None:
        raise UnknownPriceError(rate.source)
    amount = re.sub("0{1,2}$", "", f"{rate.usd_per_chip_hour:.4f}")
    return rate.usd_per_chip_hour, f"the {kind} list price in {rate.place}, ${amount} an hour"
