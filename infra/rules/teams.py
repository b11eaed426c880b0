"""Rules of the teams: namespaces, members, quotas, and how the teams lend to each other."""

from collections import defaultdict
from collections.abc import Iterator

from infra import jobset
from infra.faults import Fault, nearest
from infra.flavors import KUEUE_NAMESPACE
from infra.rules.draft import Draft, Shapes, listed
from infra.stack_file import Team

_RESERVED_NAMESPACES = frozenset({"default", KUEUE_NAMESPACE, jobset.JOBSET_NAMESPACE})


def check(draft: Draft, shapes: Shapes) -> Iterator[Fault]:
    """Faults of the section `teams`."""
    yield from _namespaces(draft)
    yield from _quotas(draft, shapes)
    for name, team in draft.teams.items():
        yield from _members(f"teams.{name}", team, draft)
        yield from _limits(f"teams.{name}", team, alone=len(draft.written_teams) == 1)
        yield from _sharing(f"teams.{name}", team, fair=draft.scheduling.fair_sharing)


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
            if draft.written_slices and group not in draft.written_slices:
                among = f"slice groups among {listed(draft.written_slices)}"
                yield Fault(
                    f"teams.{name}.quota", among, repr(group), "rename it", nearest(group, draft.written_slices)
                )
    for group in shapes:
        chips = draft.slices[group].chips
        if given[group] > chips:
            yield Fault(
                "teams",
                f"quotas of {group} that add up to at most its {chips} chips",
                str(given[group]),
                f"lower a team's quota or raise slices.{group}.count",
            )


def _members(path: str, team: Team, draft: Draft) -> Iterator[Fault]:
    if team.members.groups and draft.cluster and draft.cluster.security_group is None:
        yield Fault(
            f"{path}.members.groups",
            "no groups, since the cluster does not ask Google who is in a group",
            ", ".join(team.members.groups),
            "set cluster.security_group to gke-security-groups@DOMAIN and make them its members, or name users",
        )


def _limits(path: str, team: Team, *, alone: bool) -> Iterator[Fault]:
    for group, share in team.quota.items():
        limits = {"borrowing_limit": share.borrowing_limit, "lending_limit": share.lending_limit}
        if alone and (limited := [name for name, limit in limits.items() if limit is not None]):
            lonely = "no limit, since there is no other team to borrow from or lend to"
            yield Fault(f"{path}.quota.{group}", lonely, " and ".join(limited), "remove it or add a team")
        if share.lending_limit is not None and share.lending_limit > share.chips:
            yield Fault(
                f"{path}.quota.{group}.lending_limit",
                f"at most the team's own {share.chips} chips",
                str(share.lending_limit),
                "lower it or remove it to lend all",
            )


def _sharing(path: str, team: Team, *, fair: bool) -> Iterator[Fault]:
    pushes = team.preemption.while_borrowing != "never"
    if team.weight is not None and not fair:
        counts = "no weight, since weights count under fair sharing alone"
        yield Fault(f"{path}.weight", counts, str(team.weight), "write scheduling.fair_sharing: true or remove it")
    if pushes and fair:
        yield Fault(
            f"{path}.preemption.while_borrowing",
            "never, since fair sharing itself says who may push out whom",
            team.preemption.while_borrowing,
            "remove it or scheduling.fair_sharing",
        )
    if pushes and team.preemption.reclaim == "never":
        yield Fault(
            f"{path}.preemption.reclaim",
            "lower-priority or any, for Kueue lets no team push others out that may not reclaim its own chips",
            "never",
            "change it or remove while_borrowing",
        )
