"""Refuses to take slices away from a running job, and ends the stack's jobs before their slices."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any

import pulumi
import pulumi_gcp as gcp

from infra import borders, live
from infra.names import IN_USE, JOBSET_API_VERSION, KUEUE_NAMESPACE, NO_FOREIGN, NO_JOB_RUNS
from infra.objects import OURS, KubernetesObject, Manifest, owned
from infra.settings.schema import Cloud, SliceGroup
from infra.settings.stack import Settings

type Texts = Mapping[str, str]
"""Values of settings, as text, by path."""
_AGREE = "agree to stop it: pulumi config set allow_interruption true"
_WIDENED_IN_PLACE = "network.nodes"


class InterruptionError(Exception):
    """The change would stop a running job, or it is unknown whether one runs."""


class NewClusterError(Exception):
    """The change needs another cluster."""


@dataclass(frozen=True)
class Loss:
    """What a change takes away."""

    reasons: tuple[str, ...]
    pools: tuple[str, ...] | None
    """Node pools; None: all of them, with the cluster."""


def ground(settings: Settings) -> dict[str, Texts]:
    """What each slice stands on: of the cluster under the empty name, then of node pools by name."""
    pools = {
        f"{name}-{index}": _of_group(name, group, settings.cloud)
        for name, group in settings.slices.items()
        for index in range(group.count)
    }
    return {"": _of_cluster(settings), **pools}


def lost(old: Mapping[str, Texts], new: Mapping[str, Texts]) -> Loss:
    """What going from one ground to another takes away."""
    of_cluster = tuple(_changes(old[""], new[""]))
    if of_cluster:
        return Loss(of_cluster, None)
    reasons: dict[str, None] = {}
    pools: list[str] = []
    for pool in sorted(old.keys() - {""}):
        found = list(_changes(old[pool], new[pool])) if pool in new else [f"node pool {pool} is removed"]
        reasons |= dict.fromkeys(found)
        pools += [pool] if found else []
    return Loss(tuple(reasons), tuple(pools))


def _place(settings: Settings) -> Texts:
    """Where the cluster is found."""
    cloud = settings.cloud
    return {"cloud.project": cloud.project, "cloud.region": cloud.region, "cluster.name": settings.cluster.name}


def _of_cluster(settings: Settings) -> Texts:
    places = {"cloud": settings.cloud.model_dump(), "network": settings.network.model_dump()}
    names = {"cluster.name": settings.cluster.name, "second networks": str(settings.second_network)}
    return {**_flat("", places), **names}


def _of_group(name: str, group: SliceGroup, cloud: Cloud) -> Texts:
    # Naming the zone that the slices are in already moves nothing.
    elsewhere = {"zone": group.zone} if group.zone_in(cloud) != cloud.zone else {}
    return _flat(f"slices.{name}", group.model_dump(exclude={"count", "zone"}) | elsewhere)


def _flat(path: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        return {path: str(value)}
    prefix = f"{path}." if path else ""
    return {key: text for name, item in value.items() for key, text in _flat(f"{prefix}{name}", item).items()}


def _changes(old: Texts, new: Texts) -> Iterator[str]:
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        widened = key == _WIDENED_IN_PLACE and before and after and IPv4Network(after).supernet_of(IPv4Network(before))
        if before != after and not widened:
            yield f"{key}: {before or 'not set'} -> {after or 'not set'}"


class Guard:
    """The records of one stack."""

    ground: pulumi.Resource
    """All that can be replaced depends on it."""

    def __init__(self, settings: Settings, google: gcp.Provider, before: Sequence[pulumi.Resource]) -> None:
        """`before` is what must hold before anything is touched."""
        self._settings = settings
        self._google = google
        watched = pulumi.ResourceHookBinding(before_update=[_hook("slices-of-running-jobs-stay", self._before_change)])
        first = pulumi.ResourceOptions(depends_on=before, hooks=watched)
        self.ground = pulumi.Stash("ground", input=ground(settings), opts=first)

    def footings(self, kubernetes: pulumi.Resource) -> dict[str, pulumi.Resource]:
        """Declare what slices and jobs depend on, by slice group; `kubernetes` is the provider that deletes jobs."""
        options = pulumi.ResourceOptions(
            replace_on_changes=["input"], delete_before_replace=True, depends_on=[self.ground, kubernetes]
        )
        return {
            name: pulumi.Stash(f"footing-{name}", input=_of_group(name, group, self._settings.cloud), opts=options)
            for name, group in self._settings.slices.items()
        }

    def close(self, declared: Sequence[pulumi.Resource], kubernetes: pulumi.ResourceOptions) -> None:
        """Declare what a destroy deletes first: `declared` is everything else, `kubernetes` the cluster's provider."""
        policies: list[pulumi.Resource] = [
            KubernetesObject(name, owned(manifest), kubernetes)
            for name, manifest in teardown_policies(self._settings).items()
        ]
        first = pulumi.ResourceOptions(
            provider=kubernetes.provider,
            depends_on=[*declared, *policies],
            protect=self._settings.cluster.deletion_protection,
        )
        KubernetesObject("in-use", teardown_mark(), first)

    async def endpoint(self) -> str | None:
        """Where the stack's cluster answers; None when there is none."""
        return await self._endpoint(_place(self._settings))

    async def _before_change(self, change: pulumi.ResourceHookArgs) -> None:
        old, new = ((inputs or {})["input"] for inputs in (change.old_inputs, change.new_inputs))
        loss = lost(old, new)
        if loss.pools is None:
            # Pulumi's engine closes the Kubernetes provider before it deletes what is in the old cluster
            # (Registry.Diff in pulumi/pkg/resource/deploy/providers/registry.go), and stops halfway.
            raise NewClusterError(
                f"this change needs a new cluster, which Pulumi cannot bring in one step:{_listed(loss.reasons)}\n"
                "destroy the stack, then bring it up anew; checkpoints stay: pulumi destroy, pulumi up"
            )
        if loss.pools:
            await self._require_no_jobs(old[""], loss.pools, _listed(loss.reasons))

    async def _require_no_jobs(self, place: Texts, pools: Sequence[str], because: str) -> None:
        """Raises InterruptionError if there are jobs on these pools of the cluster that stands at `place`."""
        endpoint = None if self._settings.allow_interruption else await self._endpoint(place)
        if endpoint is None:
            return
        try:
            jobs = await asyncio.to_thread(lambda: live.live_jobs(live.connect(endpoint), pools))
        except live.UNREACHABLE as error:
            raise InterruptionError(
                "this change takes slices away, and the cluster does not answer, so it is unknown whether a job runs"
                f" on them ({error}):{because}\n"
                f"run this where the cluster can be reached; to go on whatever runs there, {_AGREE}"
            ) from None
        if jobs:
            raise InterruptionError(
                f"this change takes slices away from a running job:{because}{_listed(jobs)}\n"
                f"wait until it has ended, or {_AGREE}"
            )

    async def _endpoint(self, place: Texts) -> str | None:
        """The DNS endpoint of the cluster that stands now; None when there is none."""
        asked = {
            "name": place["cluster.name"],
            "location": place["cloud.region"],
            "project": place["cloud.project"],
        }
        try:
            # Not `get_cluster_output`: an output that fails fails the program, whoever catches the error.
            found = await pulumi.runtime.invoke_async(
                "gcp:container/getCluster:getCluster", asked, pulumi.InvokeOptions(provider=self._google)
            )
        except Exception as error:  # The SDK raises a plain one, whatever the provider answers.
            if "not found" in str(error):
                return None
            raise
        return found["controlPlaneEndpointsConfigs"][0]["dnsEndpointConfigs"][0]["endpoint"]


def _listed(items: Iterable[object]) -> str:
    return "".join(f"\n  - {item}" for item in items)


def _hook(name: str, callback: Any) -> pulumi.ResourceHook:
    return pulumi.ResourceHook(name, callback, pulumi.ResourceHookOptions(on_dry_run=True))


_EVERY_CLUSTER = ["default"]
"""Namespaces in which jobs can run though no team has them."""
_NOT_FOREIGN = "default|(kube|gke|gmp)-.*|.*-system"
"""Names that Kubernetes and GKE give their own namespaces."""
_WAYS = (
    "wait until it has ended, stop it with `multislice suspend`, set allow_interruption and run `pulumi up`, or delete"
    " it: kubectl delete jobset"
)


def teardown_policies(settings: Settings) -> dict[str, Manifest]:
    """Return the policies on deleting the mark, each followed by its bindings, by their names.

    With `allow_interruption` they only warn, and in an environment, which ends at its time whatever runs in it. JobSets
    are looked for in the namespaces of teams and in `default`; any other namespace is foreign.
    """
    running = (
        f"'job ' + params.metadata.name + ' in namespace ' + params.metadata.namespace + ' is running; {_WAYS} '"
        " + params.metadata.name + ' -n ' + params.metadata.namespace",
        "params.spec.?suspend.orValue(false) || params.?status.?terminalState.orValue('') != ''",
    )
    namespaces = [*_EVERY_CLUSTER, *sorted({team.namespace for team in settings.teams.values()})]
    written = _in_force(settings, NO_JOB_RUNS, (JOBSET_API_VERSION, "JobSet"), running, namespaces)
    for name, params in NO_FOREIGN.items():
        written |= _in_force(settings, name, params, _is_ours(params[1]), [])
    return written


def teardown_mark() -> Manifest:
    """Return the ConfigMap that a destroy deletes first."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": IN_USE, "namespace": KUEUE_NAMESPACE}}


def _is_ours(kind: str) -> tuple[str, str]:
    """Return what to say of a foreign object of that kind, and the condition under which it is none."""
    word = kind.lower()
    message = (
        f"'{kind} ' + params.metadata.name + ' was not made by this stack and would be lost with the cluster;"
        f" keep a copy if you need it, then run: kubectl delete {word} ' + params.metadata.name"
        f" + '; there may be more: kubectl get {word}'"
    )
    annotation, value = next(iter(OURS.items()))
    declared = f"params.metadata.?annotations[?'{annotation}'].orValue('') == '{value}'"
    return message, (
        f"params.metadata.name.matches('^({_NOT_FOREIGN})$') || {declared}" if kind == "Namespace" else declared
    )


def _in_force(
    settings: Settings, name: str, params: tuple[str, str], rule: tuple[str, str], namespaces: Sequence[str]
) -> dict[str, Manifest]:
    """Return a policy and its bindings: one for each of the namespaces in which it looks for `params`."""
    refuses = not settings.allow_interruption and settings.environment is None
    written = borders.policy(
        name,
        [("", "configmaps", "DELETE")],
        dict([rule]),
        namespaces=[KUEUE_NAMESPACE],
        only=f"oldObject.metadata.name == '{IN_USE}'",
        params=params,
    )
    every = {"selector": {}, "parameterNotFoundAction": "Allow"}
    places = {f"{name}-{namespace}": {**every, "namespace": namespace} for namespace in namespaces} or {name: every}
    return {name: written} | {
        f"{place}-binding": borders.binding(name, place, refuses=refuses, params=found)
        for place, found in places.items()
    }
