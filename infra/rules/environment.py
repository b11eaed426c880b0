"""Rules of the section `environment`: what lets a stack end without a trace and without harm to others."""

from collections.abc import Iterator

from infra.capacity import Reservation
from infra.faults import Fault
from infra.rules.draft import Draft


def check(draft: Draft) -> Iterator[Fault]:
    """Faults of a stack that is an environment, its end aside."""
    if draft.environment is None or draft.cluster is None:
        return
    if draft.cluster.deletion_protection:
        yield Fault(
            "cluster.deletion_protection",
            "false, since an environment is destroyed when its time has come",
            "true",
            "set it false, or remove the section environment",
        )
    for name, group in draft.slices.items():
        if isinstance(group.capacity, Reservation):
            yield Fault(
                f"slices.{name}.capacity",
                "capacity that an environment takes from nobody: on-demand, spot, flex-start or queued",
                f"the reservation {group.capacity.name}, which others count on",
                "make the environment from a stack without reserved chips",
            )
    yield from _namespaces(draft, f"{draft.cluster.name}-")


def _namespaces(draft: Draft, prefix: str) -> Iterator[Fault]:
    """Google knows pods by project, namespace and service account, not by cluster."""
    for name, team in draft.teams.items():
        if not team.namespace.startswith(prefix):
            yield Fault(
                f"teams.{name}.namespace",
                f"a name that begins with {prefix}, or pods of the project's other clusters would have the same rights",
                repr(team.namespace),
                f"write {prefix}{team.namespace}",
            )
