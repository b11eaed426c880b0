"""What a destroy must not lose: running jobs, and queues that the stack did not make.

`pulumi destroy` does not run the program, so no hook can look for them. The API server does: one ConfigMap, the mark,
depends on everything else, so the engine deletes it first, and admission policies refuse that while there is something
to lose. A destroy that is refused has deleted nothing.
"""

from collections.abc import Sequence

from infra import admission_policies
from infra.flavors import API_VERSION, KUEUE_NAMESPACE, Manifest, flavor_name
from infra.jobset import API_VERSION as JOBSET_API_VERSION
from infra.stack_file import Settings

NO_JOB_RUNS = "no-job-runs"
NO_FOREIGN = {"no-foreign-queues": "ClusterQueue", "no-foreign-flavors": "ResourceFlavor"}
"""Kinds of which the stack declares every object in its cluster, by the names of their policies."""
MARK = "in-use"

_WAYS = "wait until it has ended, stop it with `multislice suspend`, or set allow_interruption and run `pulumi up`"


def policies(settings: Settings) -> dict[str, Manifest]:
    """Return the policies on deleting the mark, each followed by its bindings, by their names.

    With `allow_interruption` they only warn, and in an environment, which ends at its time whatever runs in it.
    """
    running = (
        f"'job ' + params.metadata.name + ' in namespace ' + params.metadata.namespace + ' is running; {_WAYS}'",
        "params.spec.?suspend.orValue(false) || params.?status.?terminalState.orValue('') != ''",
    )
    namespaces = sorted({team.namespace for team in settings.teams.values()})
    written = _in_force(settings, NO_JOB_RUNS, (JOBSET_API_VERSION, "JobSet"), running, namespaces)
    for name, kind in NO_FOREIGN.items():
        foreign = (
            f"'{kind} ' + params.metadata.name + ' was not made by this stack and would be lost with the cluster;"
            f" keep a copy if you need it, then run: kubectl delete {kind.lower()} ' + params.metadata.name",
            f"params.metadata.name in oldObject.data.{kind}.split(',')",
        )
        written |= _in_force(settings, name, (API_VERSION, kind), foreign, [])
    return written


def mark(settings: Settings) -> Manifest:
    """Return the ConfigMap that a destroy deletes first; it names the flavors and queues that the stack declares."""
    placement = settings.scheduling.placement
    flavors = [flavor_name(name, group, placement) for name, group in settings.slices.items()]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": MARK, "namespace": KUEUE_NAMESPACE},
        "data": {"ResourceFlavor": ",".join(sorted(flavors)), "ClusterQueue": ",".join(sorted(settings.teams))},
    }


def _in_force(
    settings: Settings, name: str, params: tuple[str, str], rule: tuple[str, str], namespaces: Sequence[str]
) -> dict[str, Manifest]:
    """Return a policy and its bindings: one for each of the namespaces in which it looks for `params`."""
    refuses = not settings.allow_interruption and settings.environment is None
    written = admission_policies.policy(
        name,
        [("", "configmaps", "DELETE")],
        dict([rule]),
        namespaces=[KUEUE_NAMESPACE],
        only=f"oldObject.metadata.name == '{MARK}'",
        params=params,
    )
    every = {"selector": {}, "parameterNotFoundAction": "Allow"}
    places = {f"{name}-{namespace}": {**every, "namespace": namespace} for namespace in namespaces} or {name: every}
    return {name: written} | {
        f"{place}-binding": admission_policies.binding(name, place, refuses=refuses, params=found)
        for place, found in places.items()
    }
