"""Refuses to take slices away from a running job.

Owns two records in the stack's state, which are no resources anywhere else, and the hooks on them.
`ground` comes before all that can be replaced: when what the slices stand on changes, its hook looks
for jobs there before anything is touched. `in-use` comes after all: `destroy` begins with it. Hooks
run in previews as well. `allow_interruption` in the settings agrees to the loss.

What a change of a setting does to slices is said here once more than in the plan, since the engine
deletes a job ahead of its pools and a hook on these would come too late.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any

import pulumi
import pulumi_gcp as gcp

from infra import live_jobs
from infra.stack_file import Settings

DELETE_UNREACHABLE = "PULUMI_K8S_DELETE_UNREACHABLE"
"""Environment variable of the Kubernetes provider: objects of a cluster that is gone are forgotten."""

_AGREE = "wait until it has ended, or agree to stop it: pulumi config set allow_interruption true"


class InterruptionError(Exception):
    """The change would stop a running job, or nobody can tell."""


@dataclass(frozen=True)
class Loss:
    """What a change takes away."""

    reasons: tuple[str, ...]
    pools: tuple[str, ...] | None
    """Node pools; None: all of them, with the cluster."""


def ground(settings: Settings) -> Mapping[str, Mapping[str, str]]:
    """What each slice stands on, as text by setting: first the cluster, then node pools by name."""
    cloud, network = settings.cloud, settings.network
    cluster = {
        **{f"cloud.{key}": value for key, value in cloud.model_dump().items()},
        "cluster.name": settings.cluster.name,
        **{f"network.{key}": value for key, value in network.model_dump().items()},
        "second_network": str(any(group.second_network for group in settings.slices.values())),
    }
    pools = {
        f"{name}-{index}": {
            f"slices.{name}.{key}": str(value) for key, value in group.model_dump(exclude={"count"}).items()
        }
        for name, group in settings.slices.items()
        for index in range(group.count)
    }
    return {"": cluster, **pools}


def lost(old: Mapping[str, Mapping[str, str]], new: Mapping[str, Mapping[str, str]]) -> Loss:
    """What going from one ground to another takes away."""
    of_cluster = tuple(_changes(old[""], new[""]))
    if of_cluster:
        return Loss(of_cluster, None)
    reasons: dict[str, None] = {}
    pools: list[str] = []
    for pool in old.keys() - {""}:
        found = list(_changes(old[pool], new[pool])) if pool in new else [f"node pool {pool} is removed"]
        reasons |= dict.fromkeys(found)
        pools += [pool] if found else []
    return Loss(tuple(sorted(reasons)), tuple(sorted(pools)))


def _changes(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for key in sorted({*old, *new}):
        before, after = old.get(key, "unset"), new.get(key, "unset")
        if before != after and not _is_widened(key, before, after):
            yield f"{key}: {before} -> {after}"


def _is_widened(key: str, before: str, after: str) -> bool:
    """Whether a subnet's range only grows, which Google Cloud does in place."""
    return (
        key == "network.nodes"
        and "unset" not in (before, after)
        and IPv4Network(after).supernet_of(IPv4Network(before))
    )


class Guard:
    """The two records of one stack."""

    ground: pulumi.Stash
    """All that can be replaced depends on it."""

    def __init__(self, settings: Settings, google: gcp.Provider) -> None:
        self._settings = settings
        self._google = google
        hook = pulumi.ResourceHook(
            "slices-of-running-jobs-stay", self._before_change, pulumi.ResourceHookOptions(on_dry_run=True)
        )
        binding = pulumi.ResourceHookBinding(before_update=[hook])
        self.ground = pulumi.Stash("ground", input=ground(settings), opts=pulumi.ResourceOptions(hooks=binding))

    def close(self, standing: Sequence[pulumi.Resource]) -> None:
        """Declare that `standing`, which is all there is, is in use."""
        hook = pulumi.ResourceHook("no-job-runs", self._before_destroy, pulumi.ResourceHookOptions(on_dry_run=True))
        binding = pulumi.ResourceHookBinding(before_delete=[hook])
        options = pulumi.ResourceOptions(depends_on=standing, hooks=binding)
        pulumi.Stash("in-use", input=self._settings.cluster.name, opts=options)

    async def _before_change(self, change: pulumi.ResourceHookArgs) -> None:
        old, new = change.old_inputs, change.new_inputs
        if old is None or new is None:
            return
        loss = lost(old["input"], new["input"])
        if loss.reasons:
            place = old["input"][""]
            await self._require_no_jobs(place, loss, "this change takes slices away")

    async def _before_destroy(self, _: pulumi.ResourceHookArgs) -> None:
        await self._require_no_jobs(ground(self._settings)[""], Loss((), None), "this destroy takes all slices away")

    async def _require_no_jobs(self, place: Mapping[str, str], loss: Loss, what: str) -> None:
        """Raises InterruptionError if there are jobs where `place` says the cluster is."""
        if self._settings.allow_interruption:
            return
        because = "".join(f"\n  - {reason}" for reason in loss.reasons)
        endpoint = await self._endpoint(place)
        if endpoint is None:
            return
        try:
            jobs = live_jobs.live_jobs(live_jobs.connect(endpoint), loss.pools)
        except live_jobs.UNREACHABLE as error:
            raise InterruptionError(
                f"{what}, and whether jobs run there cannot be told, since the cluster does not answer"
                f" ({error}):{because}\nrun it where the cluster can be reached, or agree to stop whatever runs:"
                " pulumi config set allow_interruption true"
            ) from None
        if jobs:
            told = "".join(f"\n  - {job}" for job in jobs)
            raise InterruptionError(f"{what} from a running job:{because}{told}\n{_AGREE}")

    async def _endpoint(self, place: Mapping[str, str]) -> str | None:
        """The DNS endpoint of the cluster that stands now; None when there is none."""
        found = gcp.container.get_cluster_output(
            name=place["cluster.name"],
            location=place["cloud.region"],
            project=place["cloud.project"],
            opts=pulumi.InvokeOutputOptions(provider=self._google),
        )
        try:
            cluster: Any = await found.future()
        except Exception as error:  # The SDK raises plain ones for whatever the provider answers.
            if "not found" in str(error):
                return None
            raise
        return cluster.control_plane_endpoints_configs[0].dns_endpoint_configs[0].endpoint
