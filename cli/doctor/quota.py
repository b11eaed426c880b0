"""Chips: what Google grants, what the nodes have, what the queues give out."""

from collections.abc import Collection, Mapping
from typing import Any

from cli.doctor.check import Findings, Scope, fault, not_asked, ok
from cli.doctor.google import Google
from cli.observed.kueue import count
from infra.kubernetes import Json
from infra.names import KUEUE_API_VERSION, NODES, TPU_RESOURCE
from infra.settings.schema import SliceGroup
from infra.tpu import generations

_UNLIMITED = -1


def queues(scope: Scope) -> Findings:
    """Whether queues give out no more chips than there are."""
    given = _given(scope.listed(f"/apis/{KUEUE_API_VERSION}/clusterqueues"))
    nodes = scope.listed(NODES)
    groups: Mapping[str, SliceGroup] = scope.settings.slices if scope.settings else {}
    for flavor in scope.listed(f"/apis/{KUEUE_API_VERSION}/resourceflavors"):
        name, labels = flavor["metadata"]["name"], flavor["spec"].get("nodeLabels", {})
        chips = sum(_chips(node) for node in nodes if labels.items() <= node["metadata"]["labels"].items())
        quota, group = given.get(name, 0), groups.get(name)
        said = f"queues give out {quota} chips, nodes have {chips}"
        if group and group.capacity.on_request:
            yield ok(f"flavor {name}", f"{said}; the rest comes on request")
        elif quota > chips:
            yield fault(f"flavor {name}", said, f"see nodes; or lower its quota and `pulumi up --stack {scope.stack}`")
        else:
            yield ok(f"flavor {name}", said)


def google(scope: Scope) -> Findings:
    """Whether Google grants the chips of each slice group."""
    if scope.settings is None:
        yield not_asked("TPU quota", f"there is no stacks/Pulumi.{scope.stack}.yaml here that says how many chips")
        return
    found = scope.in_google()
    groups = scope.settings.slices
    for name, group in groups.items():
        sharing = {other: each for other, each in groups.items() if _quota_of(each) == _quota_of(group)}
        yield from _granted(found, name, group, sharing)


def zones(scope: Scope) -> Findings:
    """Whether the zone of each slice group has its machines."""
    if scope.settings is None:
        return
    found, cloud = scope.in_google(), scope.settings.cloud
    for name, group in scope.settings.slices.items():
        subject, machine, zone = f"slices.{name}.zone", group.shape.machine_type, group.zone_in(cloud)
        offering = _zones_with(found, machine)
        near = [other for other in offering if other.startswith(f"{cloud.region}-")]
        if not offering:
            yield not_asked(subject, f"Google lists {machine} in no zone")
        elif zone in offering:
            yield ok(subject, f"{zone} has {machine}")
        else:
            fix = f"name one of {', '.join(near)}" if near else f"choose another region: {', '.join(offering)}"
            yield fault(subject, f"{zone} has no {machine}", fix)


def _zones_with(google: Google, machine: str) -> list[str]:
    path = f"/compute/v1/projects/{google.project}/aggregated/machineTypes"
    items: Json = google.get("compute", path, {"filter": f'name = "{machine}"'}).get("items", {})
    return sorted(place.removeprefix("zones/") for place, listed in items.items() if listed.get("machineTypes"))


def _quota_of(group: SliceGroup) -> tuple[str, str | None] | None:
    """Return the quota that the group's chips count against, with its family of TPUs."""
    (generation,) = (each for each in generations() if each.name == group.generation)
    return generation.quotas.get(group.capacity.quota) if group.capacity.quota else None


def _needed(groups: Collection[SliceGroup]) -> int:
    """Return the chips that groups of one quota need. Those on request may come one group after the other."""
    on_request = [group.chips for group in groups if group.capacity.on_request]
    return sum(group.chips for group in groups) - sum(on_request) + max(on_request, default=0)


def _granted(google: Google, name: str, group: SliceGroup, sharing: Mapping[str, SliceGroup]) -> Findings:
    subject, found = f"slices.{name}", _quota_of(group)
    if found is None:
        yield not_asked(subject, f"no quota is known of {group.generation} by {group.capacity.kind}")
        return
    quota, family = found
    path = f"/v1/projects/{google.project}/locations/global/services/compute.googleapis.com/quotaInfos/{quota}"
    infos: list[Json] = google.get("cloudquotas", path).get("dimensionsInfos", [])
    wanted = {"region": google.region, **({"tpu_family": family} if family else {})}
    granted = next((int(info["details"]["value"]) for info in infos if _covers(info, wanted)), 0)
    needed = _needed(sharing.values())
    of = "the group has" if len(sharing) == 1 else f"{' and '.join(sharing)} need"
    said = f"Google grants {granted} chips in {google.region}, {of} {needed}"
    if granted != _UNLIMITED and granted < needed:
        yield fault(subject, said, f"ask for more of {quota}: https://console.cloud.google.com/iam-admin/quotas")
    else:
        yield ok(subject, said)


def _covers(info: Json, wanted: Mapping[str, str]) -> bool:
    dimensions: dict[str, str] = info.get("dimensions") or {}
    places: list[str] = info.get("applicableLocations") or []
    here = dimensions.get("region", wanted["region"] if wanted["region"] in places or not places else "")
    return all({**dimensions, "region": here}.get(key) == value for key, value in wanted.items())


def _given(cluster_queues: list[Json]) -> dict[str, int]:
    """Chips by flavor."""
    given: dict[str, int] = {}
    for queue in cluster_queues:
        for group in queue["spec"].get("resourceGroups", []):
            for flavor in group["flavors"]:
                given[flavor["name"]] = given.get(flavor["name"], 0) + sum(map(_nominal, flavor["resources"]))
    return given


def _nominal(resource: Json) -> int:
    return count(resource["nominalQuota"]) if resource["name"] == TPU_RESOURCE else 0


def _chips(node: Json) -> int:
    allocatable: dict[str, Any] = node["status"].get("allocatable", {})
    return count(allocatable.get(TPU_RESOURCE, 0))
