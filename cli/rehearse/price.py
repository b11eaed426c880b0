"""The price of a job on any cluster, from the labels of its flavors and nodes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.review.admission.situation import PodSet
from infra.stack.cost import Rate, list_rate
from infra.stack.manifests import Object
from infra.stack.names import (
    ACCELERATOR_LABEL,
    FLEX_START_LABEL,
    RESERVATION_LABEL,
    SPOT_LABEL,
    ZONE_LABEL,
)
from infra.stack.tpu import generations

_UNLISTED = {
    RESERVATION_LABEL: "the price of a reservation is agreed with Google",
    FLEX_START_LABEL: "flex-start has no list price",
}


@dataclass(frozen=True)
class Price:
    """The price of a job."""

    usd_per_hour: float | None
    """`None` if it is unknown."""
    basis: str
    """Where it is from, or why it is unknown."""


@dataclass(frozen=True)
class _Pods:
    """Pods of a job on a flavor."""

    flavor: str
    labels: Mapping[str, str]
    """Labels of the flavor, and those that the pods select."""
    nodes: Sequence[Mapping[str, str]]
    """Labels of the nodes with all of these."""
    why_no_nodes: str

    def values(self, label: str) -> list[str]:
        """Return the values of a label that its nodes may have."""
        found = [self.labels.get(label), *(node.get(label) for node in self.nodes)]
        return list(dict.fromkeys(value for value in found if value))

    def one(self, label: str, what: str) -> str:
        """Return the value of a label. Raise ValueError with the reason if it is not one."""
        found = self.values(label)
        if len(found) != 1:
            reason = f"nodes of {self.flavor} have several: {', '.join(found)}" if found else self.why_no_nodes
            raise ValueError(f"{what} of flavor {self.flavor} is not known ({reason})")
        return found[0]

    def rate(self) -> Rate:
        """Return the price of a chip. Raise ValueError with the reason if it is unknown."""
        accelerator = self.one(ACCELERATOR_LABEL, "the TPU generation")
        names = {each.accelerator: each.name for each in generations()}
        if accelerator not in names:
            raise ValueError(f"no price of {accelerator} is known")
        for label, why in _UNLISTED.items():
            if self.values(label):
                raise ValueError(why)
        kinds = {"spot" if node.get(SPOT_LABEL) == "true" else "on-demand" for node in self.nodes}
        if self.labels.get(SPOT_LABEL) == "true":
            kinds = {"spot"}
        if len(kinds) > 1:
            raise ValueError(f"some nodes of {self.flavor} are spot and some are not")
        zone = self.one(ZONE_LABEL, "the zone")
        rate = list_rate(names[accelerator], zone.rpartition("-")[0], zone, kinds.pop() if kinds else "on-demand")
        if rate.usd_per_chip_hour is None:
            raise ValueError(rate.source)
        return rate


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
    try:
        for pods, flavor in placed:
            rate = _pods(flavor, selectors[pods.name], flavors, nodes, refused).rate()
            usd += pods.chips * (rate.usd_per_chip_hour or 0)
            of_chip = re.sub("0{1,2}$", "", f"{rate.usd_per_chip_hour:.4f}")
            basis.append(f"{pods.chips} chips at the list price in {rate.place}, ${of_chip} an hour")
    except ValueError as error:
        return Price(None, str(error))
    return Price(round(usd, 4), "; ".join(dict.fromkeys(basis)))


def _pods(
    name: str, selector: Mapping[str, str], flavors: Sequence[Object], nodes: Sequence[Object], refused: str | None
) -> _Pods:
    own = next(each.get("spec", {}).get("nodeLabels", {}) for each in flavors if each["metadata"]["name"] == name)
    labels = {**selector, **own}
    found = [each for each in map(_labels, nodes) if labels.items() <= each.items()]
    return _Pods(name, labels, found, f"you may not {refused}" if refused else "the cluster has no such node now")


def _labels(node: Object) -> Mapping[str, str]:
    return node["metadata"].get("labels", {})
