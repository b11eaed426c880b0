"""The teams of a stack as Kueue knows them.

Owns the cohort, ClusterQueues, LocalQueues and priority classes. Pure: what the chips are is the
business of `infra.flavors`, declaring the objects in order that of `infra.queues`.

Each team has a ClusterQueue of its own, and all lie in one cohort. So a team's quota is its own:
idle chips are lent to others, and taken back as soon as the owner needs them. One shared queue
would leave no way to say whose chips they are; queues without a cohort would leave chips idle.
"""

from collections.abc import Mapping

from infra.capacity import Queued
from infra.flavors import flavor_name
from infra.names import KUEUE_API_VERSION, TPU_RESOURCE, WAIT_FOR, Manifest
from infra.settings.schema import Placement, Preemption, Quota, SliceGroup, Team

MANAGED = {"kueue-managed": "true"}
"""Label of the namespaces whose jobs Kueue holds back until a queue admits them."""
PRIORITIES = {"low": 100, "normal": 500, "high": 1000}

_COHORT = "tpu"
_STOP_POLICIES = {"open": "None", "hold": "Hold", "drain": "HoldAndDrain"}
_SUFFIXES = ("m", "", "k", "M", "G")
"""Of quantities, each a thousand times the one before it."""


def cohort() -> Manifest:
    """The queues that lend to each other.

    Kueue would make one of a name that queues mention; declared, it stands and goes in its order.
    """
    return {"apiVersion": KUEUE_API_VERSION, "kind": "Cohort", "metadata": {"name": _COHORT}}


def cluster_queue(name: str, team: Team, groups: Mapping[str, SliceGroup], placement: Placement) -> Manifest:
    """A team's quota, how it is defended, and in which order its flavors are tried."""
    names = {group: flavor_name(group, groups[group], placement) for group in team.quota}
    queued = [group for group in team.quota if isinstance(groups[group].capacity, Queued)]
    checks = [{"name": group, "onFlavors": [names[group]]} for group in queued]
    return {
        "apiVersion": KUEUE_API_VERSION,
        "kind": "ClusterQueue",
        "metadata": {"name": name, "annotations": _awaited(team)},
        "spec": {
            "cohortName": _COHORT,
            "stopPolicy": _STOP_POLICIES[team.admission],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": team.namespace}},
            **({"admissionChecksStrategy": {"admissionChecks": checks}} if checks else {}),
            **({"fairSharing": {"weight": quantity(team.weight)}} if team.weight else {}),
            "preemption": _preemption(team.preemption),
            # Idle chips that others lend come before the next flavor, for they are paid already. Running
            # jobs come after it: nobody is pushed out while another flavor has room.
            "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
            "resourceGroups": [
                {
                    "coveredResources": [TPU_RESOURCE],
                    "flavors": [
                        {"name": names[group], "resources": [{"name": TPU_RESOURCE, **_quota(share)}]}
                        for group, share in team.quota.items()
                    ],
                }
            ],
        },
    }


def local_queue(name: str, team: Team) -> Manifest:
    """Where the team's jobs are submitted."""
    return {
        "apiVersion": KUEUE_API_VERSION,
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": team.namespace, "annotations": _awaited(team)},
        "spec": {"clusterQueue": name},
    }


def priority_class(name: str, value: int) -> Manifest:
    """A priority in the queue; the scheduler does not know it, so running pods are evicted by Kueue alone."""
    return {
        "apiVersion": KUEUE_API_VERSION,
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": name},
        "value": value,
        "description": f"{name} priority in the TPU queues",
    }


def quantity(amount: float) -> str:
    """An amount, to a thousandth, as Kueue rewrites it when it takes a new queue: else it would show as drift."""
    if not amount:
        return "0"
    count, scale = round(amount * 1000), 0
    while count % 1000 == 0:
        count, scale = count // 1000, scale + 1
    return f"{count}{_SUFFIXES[scale]}"


def amount(written: str | int) -> float:
    """The amount that `quantity`, or Kueue, wrote so."""
    number = str(written).rstrip("".join(_SUFFIXES))
    suffix = str(written).removeprefix(number)
    return float(number) * 1000.0 ** (_SUFFIXES.index(suffix) - 1)


def _awaited(team: Team) -> dict[str, str]:
    """What makes a queue count as declared; one that is stopped never becomes active."""
    return {WAIT_FOR: "condition=Active" if team.admission == "open" else "condition=Active=False"}


def _preemption(preemption: Preemption) -> Manifest:
    return {
        "withinClusterQueue": _in_kueues_words(preemption.within_team),
        "reclaimWithinCohort": _in_kueues_words(preemption.reclaim),
        "borrowWithinCohort": {"policy": _in_kueues_words(preemption.while_borrowing)},
    }


def _in_kueues_words(policy: str) -> str:
    return policy.title().replace("-", "")


def _quota(share: Quota) -> dict[str, str]:
    limits = {"borrowingLimit": share.borrowing_limit, "lendingLimit": share.lending_limit}
    return {
        "nominalQuota": quantity(share.chips),
        **{key: quantity(limit) for key, limit in limits.items() if limit is not None},
    }
