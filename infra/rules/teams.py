"""Rules of the teams: namespaces and quotas."""

from collections import defaultdict
from collections.abc import Iterator

from infra import jobset
from infra.faults import Fault
from infra.flavors import KUEUE_NAMESPACE
from infra.rules.draft import Draft, Shapes, listed

_RESERVED_NAMESPACES = frozenset({"default", KUEUE_NAMESPACE, jobset.JOBSET_NAMESPACE})


def check(draft: Draft, shapes: Shapes) -> Iterator[Fault]:
    """Faults of the section `teams`."""
    yield from _namespaces(draft)
    yield from _quotas(draft, shapes)


def _namespaces(draft: Draft) -> Iterator[Fault]:
    owners: dict[str, str] = {}
    for name, team in draft.teams.items():
        path = f"teams.{name}.namespace"
        if team.namespace in _RESERVED_NAMESPACES or team.namespace.startswith(("kube-", "gke-", "gmp-")):
            yield Fault(
                path, "a namespace of the team's own", repr(team.namespace), "choose another; this one is taken"
            )
        elif team.namespace in owners:
            other = owners[team.namespace]
            yield Fault(path, "a namespace for this team alone", repr(team.namespace), f"team {other} has it already")
        owners[team.namespace] = name


def _quotas(draft: Draft, shapes: Shapes) -> Iterator[Fault]:
    given: defaultdict[str, int] = defaultdict(int)
    for name, team in draft.teams.items():
        for group, share in team.quota.items():
            given[group] += share.chips
            if group not in draft.written_slices:
                among = f"slice groups among {listed(draft.written_slices)}"
                yield Fault(f"teams.{name}.quota", among, repr(group), "rename it")
    for group in shapes:
        chips = draft.slices[group].chips
        if given[group] > chips:
            yield Fault(
                "teams",
                f"quotas of {group} that add up to at most its {chips} chips",
                str(given[group]),
                f"lower a team's quota or raise slices.{group}.count",
            )
