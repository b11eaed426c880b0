"""What a destroy must not lose: running jobs, and queues and namespaces that the stack did not make.

`pulumi destroy` does not run the program, so no hook can look for them. The API server does: one ConfigMap, the mark,
depends on everything else, so the engine deletes it first, and admission policies refuse that while there is something
to lose. A destroy that is refused has deleted nothing.
"""

from collections.abc import Sequence

from infra import admission_policies
from infra.names import (
    JOBSET_API_VERSION,
    KUEUE_NAMESPACE,
    MARK,
    NO_FOREIGN,
    NO_JOB_RUNS,
    OURS,
    Manifest,
)
from infra.settings.stack import Settings

_EVERY_CLUSTER = ["default"]
"""Namespaces in which jobs can run though no team has them."""
_NOT_FOREIGN = "default|(kube|gke|gmp)-.*|.*-system"
"""Names that Kubernetes and GKE give their own namespaces."""
_WAYS = (
    "wait until it has ended, stop it with `multislice suspend`, set allow_interruption and run `pulumi up`, or delete"
    " it: kubectl delete jobset"
)


def policies(settings: Settings) -> dict[str, Manifest]:
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


def mark() -> Manifest:
    """Return the ConfigMap that a destroy deletes first."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": MARK, "namespace": KUEUE_NAMESPACE}}


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
