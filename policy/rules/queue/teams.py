"""What must hold of the queues that teams submit to."""

from collections.abc import Iterator, Sequence

from policy.kueue import team_namespaces
from policy.resources import at, namespace, object_name, of_kind
from policy.rule import About, Broken, Declared, Group, Level, Rule, Severity, StackRule

_LOCAL_QUEUE = "https://kueue.sigs.k8s.io/docs/concepts/local_queue/"
_CLUSTER_QUEUE = "https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/"
_NAME_LABEL = "kubernetes.io/metadata.name"
"""That Kubernetes gives every namespace."""


def _one_queue(resources: Sequence[Declared]) -> Iterator[Broken]:
    targets = {
        (namespace(queue), at(queue.properties, "spec", "clusterQueue")) for queue in of_kind(resources, "LocalQueue")
    }
    for team in team_namespaces(resources):
        count = sum(where == object_name(team) for where, _ in targets)
        if count != 1:
            yield Broken(
                f"expected queues to one ClusterQueue in namespace {object_name(team)!r}, got {count}", team.urn
            )


def _queue_behind(resources: Sequence[Declared]) -> Iterator[Broken]:
    behind = {object_name(queue) for queue in of_kind(resources, "ClusterQueue")}
    for queue in of_kind(resources, "LocalQueue"):
        target = at(queue.properties, "spec", "clusterQueue")
        if target not in behind:
            yield Broken(f"expected a ClusterQueue of the stack ({_listed(behind)}), got {target!r}", queue.urn)


def _admitted_namespaces(resources: Sequence[Declared]) -> Iterator[Broken]:
    selectors = {
        object_name(queue): at(queue.properties, "spec", "namespaceSelector")
        for queue in of_kind(resources, "ClusterQueue")
    }
    labels = {
        object_name(found): {_NAME_LABEL: object_name(found), **(at(found.properties, "metadata", "labels") or {})}
        for found in of_kind(resources, "Namespace")
    }
    for queue in of_kind(resources, "LocalQueue"):
        target, where = at(queue.properties, "spec", "clusterQueue"), namespace(queue)
        if target in selectors and not _selects(selectors[target], labels.get(where, {_NAME_LABEL: where})):
            says = f"expected ClusterQueue {target!r} to take jobs of namespace {where!r}, its selector does not"
            yield Broken(says, queue.urn)


def _selects(selector: object, labels: dict[str, str]) -> bool:
    """Kueue takes a missing selector for nothing, an empty one for all; of expressions it is not decided here."""
    if selector is None:
        return False
    return (at(selector, "matchLabels") or {}).items() <= labels.items()


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "there is none"


RULES: tuple[Rule, ...] = (
    StackRule(
        About(
            "one-queue-for-each-team",
            Group.QUEUE,
            Severity.HIGH,
            Level.MANDATORY,
            "The queues of a team's namespace lead to exactly one ClusterQueue",
            "Without a queue no job of the team ever runs, for Kueue holds it back; with two it depends on a label"
            " whose chips a job takes.",
            "Declare the team once under teams, with a namespace of its own.",
            _LOCAL_QUEUE,
        ),
        _one_queue,
    ),
    StackRule(
        About(
            "queue-leads-somewhere",
            Group.QUEUE,
            Severity.HIGH,
            Level.MANDATORY,
            "Each LocalQueue leads to a ClusterQueue of the stack",
            "Jobs in a queue that leads nowhere wait for ever, and nothing tells their owner.",
            "Let LocalQueue and ClusterQueue have the team's name.",
            _LOCAL_QUEUE,
        ),
        _queue_behind,
    ),
    StackRule(
        About(
            "queue-takes-its-team",
            Group.QUEUE,
            Severity.HIGH,
            Level.MANDATORY,
            "A ClusterQueue takes jobs of the namespaces whose queues lead to it",
            "Kueue admits no job of a namespace that the selector leaves out; a missing selector leaves out all.",
            "Give the ClusterQueue a namespaceSelector with the team's namespace.",
            _CLUSTER_QUEUE,
        ),
        _admitted_namespaces,
    ),
)
