"""What decides whether Kueue admits a job, and its price: objects of any cluster, as far as this user may read them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.cluster.kubernetes import FORBIDDEN, ApiError, ApiServer, Json, right
from infra.stack.cost import list_rate
from infra.stack.manifests import Object, configuration
from infra.stack.names import (
    ACCELERATOR_LABEL,
    CONFIG_MAPS,
    FLEX_START_LABEL,
    JOBSET_GROUP,
    KUEUE_API_VERSION,
    KUEUE_GROUP,
    KUEUE_NAMESPACE,
    NODES,
    RESERVATION_LABEL,
    SPOT_LABEL,
    ZONE_LABEL,
)
from infra.stack.tpu import generations

_OLD_API_VERSION = f"{KUEUE_GROUP}/v1beta1"
CONFIG_MAP = "kueue-manager-config"
"""ConfigMap with Kueue's configuration, in its chart and its manifests."""
_VERSION_LABEL = "app.kubernetes.io/version"
_OF_CLUSTER = ("clusterqueues", "resourceflavors", "cohorts", "workloadpriorityclasses", "admissionchecks")
_OF_NAMESPACES = ("localqueues", "workloads")
_REQUIRED = ("clusterqueues", "resourceflavors", "localqueues")
_PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
_NAMESPACE = "/api/v1/namespaces/{}"
_LIMIT_RANGES = f"{_NAMESPACE}/limitranges"


class NoKueueError(RuntimeError):
    """Raised for a cluster whose objects do not say what Kueue would do. The message says why."""


@dataclass(frozen=True)
class KueueObjects:
    """Objects of a cluster at one moment, as one user sees them."""

    api_version: str
    namespace: str
    lists: Mapping[str, Sequence[Json]]
    """Objects by the plural name of their kind. Of a refused kind, those of the namespace, or none."""
    refused: Mapping[str, str]
    """Right that this user lacks, by the plural name of the kind."""
    namespace_labels: Mapping[str, str] | None
    """Labels of the namespace. `None` if this user may not read it."""
    configuration: Object | None
    """Kueue's configuration. `None` if it is not in the usual ConfigMap or cannot be read."""
    kueue_version: str
    """Version of Kueue on the label of that ConfigMap, which its chart has, such as v0.19.2. Empty if it is unknown."""
    has_jobsets: bool

    def named(self, plural: str, name: str) -> Json | None:
        """Return the object of a kind and name; of a namespaced kind, the one in the namespace."""
        found = (each for each in self.lists[plural] if each["metadata"]["name"] == name)
        return next((each for each in found if each["metadata"].get("namespace") in (None, self.namespace)), None)


def read(api: ApiServer, namespace: str) -> KueueObjects:
    """Return the objects that matter for jobs in a namespace.

    Raises:
        NoKueueError: the cluster has no Kueue, or one with another API, or this user may not read its queues.
        ApiError: the API server refuses a request for another reason than the user's rights.
    """
    version = served_version(api)
    lists: dict[str, Sequence[Json]] = {}
    refused: dict[str, str] = {}

    def listed(plural: str, *paths: str) -> None:
        """Read the first list that this user may read. The rights to those before it are missing."""
        for path in paths:
            try:
                # An old Kueue has no cohorts in this version.
                found = (api.find(path) or {"items": []})["items"]
                # The API server leaves out a spec in which nothing is set.
                lists[plural] = [{"spec": {}, **each} for each in found]
                return
            except ApiError as error:
                if error.status != FORBIDDEN:
                    raise
                refused.setdefault(plural, right(path))

    for plural in _OF_CLUSTER:
        listed(plural, f"/apis/{version}/{plural}")
    for plural in _OF_NAMESPACES:
        listed(plural, f"/apis/{version}/{plural}", f"/apis/{version}/namespaces/{namespace}/{plural}")
    listed("priorityclasses", _PRIORITIES)
    listed("limitranges", _LIMIT_RANGES.format(namespace))
    listed("nodes", f"{NODES}?labelSelector={ACCELERATOR_LABEL}")
    _require_quotas(lists, refused)
    space = _readable(api, _NAMESPACE.format(namespace))
    config_map = _readable(api, f"{CONFIG_MAPS.format(KUEUE_NAMESPACE)}/{CONFIG_MAP}")
    return KueueObjects(
        api_version=version,
        namespace=namespace,
        lists={plural: lists.get(plural, ()) for plural in (*lists, *refused)},
        refused=refused,
        namespace_labels=space and space["metadata"].get("labels", {}),
        configuration=config_map and configuration(config_map),
        kueue_version=config_map["metadata"].get("labels", {}).get(_VERSION_LABEL, "") if config_map else "",
        has_jobsets=api.find(f"/apis/{JOBSET_GROUP}") is not None,
    )


def _require_quotas(lists: Mapping[str, Sequence[Json]], refused: Mapping[str, str]) -> None:
    if missing := [plural for plural in _REQUIRED if plural not in lists]:
        rights = " and ".join(refused[plural] for plural in missing)
        roles = " and ".join(f"kueue-{plural.removesuffix('s')}-viewer-role" for plural in missing)
        raise NoKueueError(
            f"expected a user who may {rights}, because these are the quotas of the queue; ask for these rights, which"
            f" Kueue has in the ClusterRole {roles}"
        )


def served_version(api: ApiServer) -> str:
    """Return the newest known version of Kueue's API that the cluster serves. Raise NoKueueError if it serves none."""
    group = api.find(f"/apis/{KUEUE_GROUP}")
    if group is None:
        raise NoKueueError(f"expected a cluster with Kueue, got one without the API group {KUEUE_GROUP}")
    served = [version["groupVersion"] for version in group["versions"]]
    known = [version for version in (KUEUE_API_VERSION, _OLD_API_VERSION) if version in served]
    if not known:
        expected = f"{KUEUE_API_VERSION} or {_OLD_API_VERSION}"
        raise NoKueueError(f"expected a Kueue that serves {expected}, got {', '.join(served) or 'none'}")
    return known[0]


def _readable(api: ApiServer, path: str) -> Json | None:
    try:
        return api.find(path)
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        return None


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
    placed: Sequence[tuple[int, str, Mapping[str, str]]],
    flavors: Sequence[Object],
    nodes: Sequence[Object],
    refused: str | None,
) -> Price:
    """Return the price of pod sets, each with its chips, flavor and node selector.

    `refused` is the right that this user lacks to read nodes, if any.
    """
    if not placed:
        return Price(None, "it has no flavor yet")
    usd, basis = 0.0, list[str]()
    of_flavor = {each["metadata"]["name"]: each.get("spec", {}).get("nodeLabels", {}) for each in flavors}
    of_nodes = [node["metadata"].get("labels", {}) for node in nodes]
    why_none = f"you may not {refused}" if refused else "the cluster has no such node now"
    try:
        for chips, flavor, selector in placed:
            labels = {**selector, **of_flavor[flavor]}
            found = [each for each in of_nodes if labels.items() <= each.items()]
            usd_per_chip, text = _rate(flavor, [labels, *found], why_none)
            usd += chips * usd_per_chip
            basis.append(f"{chips} chips at {text}")
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
