"""Names in an existing cluster that the stack takes, and the refusal of those that others have already.

A record in the stack's state lists the names. A name that is new in the record must not exist in the cluster, or it
belongs to somebody else. Nothing is taken over: the stack would change or, at its end, delete what is not its own.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pulumi

from infra import monitoring
from infra.cluster.kubernetes import ApiServer
from infra.existing.checks import NAMESPACES
from infra.operators import PRIORITY
from infra.stack import admission_policies, kueue
from infra.stack.names import KUEUE_API_VERSION, NO_JOB_RUNS, slice_pool
from infra.stack.settings.errors import FieldError, SettingsError
from infra.stack.settings.stack import Settings

_KUEUE = f"/apis/{KUEUE_API_VERSION}"
_POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
_ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
_NAMESPACES = "/api/v1/namespaces"
_PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
POOLS = "node pool"
"""Takes the place of the API path for node pools, which the cluster's API server does not know."""


@dataclass(frozen=True)
class Claim:
    """A name that the stack takes."""

    collection: str
    """API path of the kind, or `POOLS`."""
    name: str
    setting: str
    fix: str

    @property
    def path(self) -> str:
        return f"{self.collection}/{self.name}"

    @property
    def error(self) -> FieldError:
        """Return the error of a name that somebody else has."""
        kind = self.collection.rpartition("/")[2]
        return FieldError(self.setting, f"a name that is free in {kind}", repr(self.name), self.fix)


def claims(settings: Settings) -> Iterator[Claim]:
    """Yield all names of the stack that are unique in the cluster."""
    cluster, placement = settings.cluster, settings.scheduling.placement
    assert cluster.existing is not None
    for name, group in settings.slices.items():
        setting, fix = f"slices.{name}", "rename the slice group"
        yield Claim(f"{_KUEUE}/resourceflavors", kueue.flavor_name(name, group, placement), setting, fix)
        if not group.existing:
            yield from (Claim(POOLS, slice_pool(name, index), setting, fix) for index in range(group.count))
        if group.capacity.queued:
            yield Claim(f"{_KUEUE}/admissionchecks", name, setting, fix)
            yield Claim(f"{_KUEUE}/provisioningrequestconfigs", name, setting, fix)
    for name, team in settings.teams.items():
        yield Claim(f"{_KUEUE}/clusterqueues", name, f"teams.{name}", "rename the team")
        yield Claim(_NAMESPACES, team.namespace, f"teams.{name}.namespace", "choose another, or delete it")
    for collection, name in _prefixed(settings):
        yield Claim(collection, name, "cluster.name", "choose another prefix")
    for name, how in (("jobset", cluster.existing.jobset), ("kueue", cluster.existing.kueue)):
        if how == "install":
            setting = f"cluster.existing.{name}"
            yield Claim(_NAMESPACES, NAMESPACES[name], setting, f"write {setting}: found")


def _prefixed(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield the names that begin with the prefix of the stack, of which it has several of each kind."""
    prefix = settings.prefix
    yield f"{_KUEUE}/cohorts", f"{prefix}{kueue.COHORT}"
    for priority in kueue.PRIORITIES:
        yield f"{_KUEUE}/workloadpriorityclasses", f"{prefix}{priority}"
    if settings.scheduling.placement == "topology-aware":
        yield f"{_KUEUE}/topologies", f"{prefix}{kueue.TOPOLOGY}"
    existing = settings.cluster.existing
    if existing and "install" in (existing.jobset, existing.kueue):
        yield _PRIORITIES, f"{prefix}{PRIORITY}"
    if settings.monitoring.enabled:
        yield _NAMESPACES, f"{prefix}{monitoring.NAMESPACE}"
    for policy in (admission_policies.TRAINERS, admission_policies.BAD_HOST, NO_JOB_RUNS):
        yield _POLICIES, f"{prefix}{policy}"
    yield _ROLES, f"{prefix}{admission_policies.BAD_HOST}"


def claim_record(wanted: Iterable[Claim], pools: Iterable[str], endpoint: str | None) -> pulumi.Resource:
    """Declare the record of the names. `pools` are the node pools of the cluster with this DNS endpoint.

    It is checked before anything is changed, also in previews, except in offline ones, which know no endpoint."""
    by_path, existing = {claim.path: claim for claim in wanted}, {f"{POOLS}/{name}" for name in pools}
    if endpoint is None:
        return pulumi.Stash("names", input={"names": sorted(by_path)})

    async def look(change: pulumi.ResourceHookArgs) -> None:
        before: Mapping[str, object] = change.old_inputs or {}
        own = set(_names(before))
        new = [claim for path, claim in by_path.items() if path not in own]
        if taken := await asyncio.to_thread(lambda: list(_taken(new, existing, ApiServer.at(endpoint)))):
            raise SettingsError([claim.error for claim in taken])

    hook = pulumi.ResourceHook("names-are-free", look, pulumi.ResourceHookOptions(on_dry_run=True))
    watched = pulumi.ResourceHookBinding(before_create=[hook], before_update=[hook])
    return pulumi.Stash("names", input={"names": sorted(by_path)}, opts=pulumi.ResourceOptions(hooks=watched))


def _names(inputs: Mapping[str, object]) -> Iterator[str]:
    match inputs.get("input"):
        case {"names": list(found)}:
            yield from map(str, found)  # pyright: ignore[reportUnknownArgumentType]
        case _:
            return


def _taken(new: Iterable[Claim], pools: Iterable[str], server: ApiServer) -> Iterator[Claim]:
    """Yield the names that exist, of those that are not in the record yet."""
    for claim in new:
        if claim.path in pools or (claim.collection != POOLS and server.find(claim.path) is not None):
            yield claim
