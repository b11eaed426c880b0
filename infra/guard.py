"""Refuses to take from a running job what it needs, and ends the stack's jobs before their slices.

The slice dependencies are a record in the stack's state that precedes everything that can be replaced: what slices
depend on, and what the running jobs of a team depend on, including submitted ones. When it changes, its hook looks for
running jobs before the engine changes anything. A marker for each slice group precedes its slices and is replaced
together with them. The stack's jobs are replaced with it: they save and end while they still have their hosts. Hooks
also run in previews. Hooks on the node pools would come too late, because the engine deletes a job before them.

`pulumi destroy` does not run the program, so no hook can guard it. The API server does: one ConfigMap depends on
everything else, so the engine deletes it first, and admission policies refuse that deletion while anything would be
lost. A refused destroy has deleted nothing.

`allow_interruption` accepts the loss.
"""

import asyncio
from collections.abc import Iterable, Sequence

import pulumi
import pulumi_gcp as gcp

from infra.cluster.kubernetes import UNREACHABLE, ApiServer
from infra.cluster.running_jobs import running_jobs
from infra.objects import KubernetesObject
from infra.review.obstacles import Loss, Texts, cluster_query, group_texts, loss, slice_dependencies
from infra.stack import admission_policies
from infra.stack.command_lines import command_line, stored_command_line
from infra.stack.manifests import OURS, Manifest, manifest, mark_ours
from infra.stack.names import IN_USE, JOBSET_API_VERSION, KUEUE_NAMESPACE, NO_FOREIGN, NO_JOB_RUNS, STACK_ANNOTATION
from infra.stack.settings.stack import Settings
from infra.stack.settings.values import NAMESPACE

_ACCEPT = f"accept the loss: write {NAMESPACE}:allow_interruption: true below config in the stack file"
_ALWAYS_SEARCHED = ["default"]
"""Namespaces in which jobs can run although they belong to no team."""
_NOT_FOREIGN = "default|(kube|gke|gmp)-.*|.*-system"
"""Names and prefixes of the namespaces of Kubernetes and GKE."""


class InterruptionError(Exception):
    """Raised when a change would stop a running job, or if it is unknown whether one runs."""


class NewClusterError(Exception):
    """Raised when a change needs another cluster."""


class Guard:
    """The records of one stack that guard its slices."""

    slice_dependencies: pulumi.Resource
    """Resource that everything replaceable depends on."""

    def __init__(self, settings: Settings, google: gcp.Provider, before: Sequence[pulumi.Resource]) -> None:
        """`before` are resources that must exist before anything is changed."""
        self._settings = settings
        self._google = google
        hook = pulumi.ResourceHook(
            "refuse-loss-of-running-jobs", self._before_change, pulumi.ResourceHookOptions(on_dry_run=True)
        )
        watched = pulumi.ResourceHookBinding(before_update=[hook])
        # Its name in stacks that an earlier version deployed.
        former = [pulumi.Alias(name="ground")]
        first = pulumi.ResourceOptions(depends_on=before, hooks=watched, aliases=former)
        self.slice_dependencies = pulumi.Stash("slice-dependencies", input=slice_dependencies(settings), opts=first)

    def markers(self, kubernetes: pulumi.Resource) -> dict[str, pulumi.Resource]:
        """Declare the records that slices and jobs depend on, by slice group. `kubernetes` is the provider that deletes
        jobs."""
        found: dict[str, pulumi.Resource] = {}
        for name, group in self._settings.slices.items():
            options = pulumi.ResourceOptions(
                # Its name in stacks that an earlier version deployed.
                aliases=[pulumi.Alias(name=f"footing-{name}")],
                replace_on_changes=["input"],
                delete_before_replace=True,
                depends_on=[self.slice_dependencies, kubernetes],
            )
            texts = group_texts(name, group, self._settings.cloud)
            found[name] = pulumi.Stash(f"marker-{name}", input=texts, opts=options)
        return found

    def close(self, declared: Sequence[pulumi.Resource], kubernetes: pulumi.ResourceOptions) -> None:
        """Declare what a destroy deletes first. `declared` is everything else, `kubernetes` has the cluster's
        provider."""
        policies: list[pulumi.Resource] = [
            KubernetesObject(name, mark_ours(rendered, self._settings.prefix), kubernetes)
            for name, rendered in destroy_policies(self._settings, pulumi.get_stack()).items()
        ]
        first = pulumi.ResourceOptions(
            provider=kubernetes.provider,
            depends_on=[*declared, *policies],
            protect=self._settings.cluster.deletion_protection and not self._settings.cluster.existing,
        )
        KubernetesObject(IN_USE, in_use(self._settings), first)

    async def endpoint(self) -> str | None:
        """Return the DNS endpoint of the stack's cluster; `None` if there is no cluster."""
        return await self._endpoint(slice_dependencies(self._settings)[""])

    async def _before_change(self, change: pulumi.ResourceHookArgs) -> None:
        old, new = ((inputs or {})["input"] for inputs in (change.old_inputs, change.new_inputs))
        lost = loss(old, new)
        if lost.pools is None:
            # Pulumi's engine closes the Kubernetes provider before it deletes what is in the old cluster
            # (Registry.Diff in pulumi/pkg/resource/deploy/providers/registry.go), and stops halfway.
            stack = pulumi.get_stack()
            raise NewClusterError(
                f"this change needs a new cluster, which Pulumi cannot create in one step:{_bullets(lost.reasons)}\n"
                "destroy the stack, then bring it up again; checkpoints are kept:"
                f" {command_line('down', stack)}, then {command_line('up', stack)}"
            )
        if lost.reasons:
            await self._require_no_jobs(old[""], lost)

    async def _require_no_jobs(self, place: Texts, lost: Loss) -> None:
        """Raise InterruptionError if running jobs in the cluster at `place` need what is lost."""
        endpoint = None if self._settings.allow_interruption else await self._endpoint(place)
        if endpoint is None:
            return
        because, places = _bullets(lost.reasons), (lost.pools or (), lost.namespaces, lost.quotas)
        try:
            jobs = await asyncio.to_thread(lambda: running_jobs(ApiServer.at(endpoint), *places))
        except UNREACHABLE as error:
            raise InterruptionError(
                "this change removes what running jobs need, and they cannot be listed because the cluster is"
                f" unreachable ({error}):{because}\nrun this where the cluster can be reached; to continue in any case,"
                f" {_ACCEPT}"
            ) from None
        if jobs:
            raise InterruptionError(
                f"this change removes what running jobs need:{because}\nthe jobs are:{_bullets(jobs)}\n"
                f"wait until they have ended, or {_ACCEPT}"
            )

    async def _endpoint(self, place: Texts) -> str | None:
        try:
            # Not `get_cluster_output`: an output that fails makes the program fail, even if the error is caught.
            found = await pulumi.runtime.invoke_async(
                "gcp:container/getCluster:getCluster", cluster_query(place), pulumi.InvokeOptions(provider=self._google)
            )
        except Exception as error:  # The SDK raises a plain Exception for every error of the provider.
            if "not found" in str(error):
                return None
            raise
        return found["controlPlaneEndpointsConfigs"][0]["dnsEndpointConfigs"][0]["endpoint"]


def _bullets(items: Iterable[object]) -> str:
    return "".join(f"\n  - {item}" for item in items)


def destroy_policies(settings: Settings, stack: str) -> dict[str, Manifest]:
    """Return the policies on deleting `in_use`, each followed by its bindings, by name. `stack` is the stack's name.

    With `allow_interruption` they only warn. Jobs are searched for in the namespaces of teams and in `default`; any
    other namespace is foreign.

    In an existing cluster, namespaces of others are not searched, because nothing of theirs is lost. Only a Kueue that
    the stack installed would take their queues with it.
    """
    found = settings.cluster.existing
    ways = (
        "wait until it has ended, set its `paused` or allow_interruption and run"
        f" `{stored_command_line('up', stack)}`, or delete it: kubectl delete jobset"
    )
    running = (
        f"'job ' + params.metadata.name + ' in namespace ' + params.metadata.namespace + ' is running; {ways} '"
        " + params.metadata.name + ' -n ' + params.metadata.namespace",
        "params.spec.?suspend.orValue(false) || params.?status.?terminalState.orValue('') != ''",
    )
    namespaces = [*([] if found else _ALWAYS_SEARCHED), *sorted({team.namespace for team in settings.teams.values()})]
    policies = _in_force(settings, NO_JOB_RUNS, (JOBSET_API_VERSION, "JobSet"), running, namespaces)
    for name, params in NO_FOREIGN.items():
        if found is None or (found.kueue == "install" and params[1] != "Namespace"):
            policies |= _in_force(settings, name, params, _ours(params[1], settings.prefix), [])
    return policies


def in_use(settings: Settings) -> Manifest:
    """Return the ConfigMap that a destroy deletes first. It is in a namespace of the stack."""
    return manifest("v1", "ConfigMap", IN_USE, _namespace_in_use(settings))


def _namespace_in_use(settings: Settings) -> str:
    if settings.cluster.existing is None:
        return KUEUE_NAMESPACE
    return min(team.namespace for team in settings.teams.values())


def _ours(kind: str, prefix: str) -> tuple[str, str]:
    """Return the message about an object of that kind which the stack did not create, and the condition that it did.

    In an existing cluster the stack's objects have its `prefix` in an annotation. Those of a cluster's own stack have
    none, but another stack may use that cluster too."""
    word = kind.lower()
    message = (
        f"'{kind} ' + params.metadata.name + ' was not made by this stack and would be lost with the cluster;"
        f" keep a copy if you need it, then run: kubectl delete {word} ' + params.metadata.name"
        f" + '; there may be more: kubectl get {word}'"
    )
    wanted = {**OURS, STACK_ANNOTATION: prefix}
    declared = " && ".join(
        f"params.metadata.?annotations[?'{key}'].orValue('') == '{value}'" for key, value in wanted.items()
    )
    return message, (
        f"params.metadata.name.matches('^({_NOT_FOREIGN})$') || {declared}" if kind == "Namespace" else declared
    )


def _in_force(
    settings: Settings, name: str, params: tuple[str, str], rule: tuple[str, str], namespaces: Sequence[str]
) -> dict[str, Manifest]:
    """Return a policy and its bindings, one for each namespace in which it looks for `params`."""
    refuses = not settings.allow_interruption
    scoped = f"{settings.prefix}{name}"
    policy = admission_policies.policy(
        scoped,
        [("", "configmaps", "DELETE")],
        dict([rule]),
        namespaces=[_namespace_in_use(settings)],
        only=f"oldObject.metadata.name == '{IN_USE}'",
        params=params,
    )
    every = {"selector": {}, "parameterNotFoundAction": "Allow"}
    places = {f"{name}-{namespace}": {**every, "namespace": namespace} for namespace in namespaces} or {name: every}
    return {name: policy} | {
        f"{place}-binding": admission_policies.binding(
            scoped, f"{settings.prefix}{place}", refuses=refuses, params=found
        )
        for place, found in places.items()
    }
