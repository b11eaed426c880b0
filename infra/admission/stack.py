"""The stack's job before the stack's queues.

Owns what is rehearsed when a stack is previewed: queues, flavors and JobSet as the plan renders
them, and the workloads that a cluster says it has. Asking a cluster is the business of the caller
(`infra.live_jobs.workloads`).
"""

import math
from collections.abc import Iterable

from infra import cluster_queues, flavors, jobset
from infra.admission import manifests
from infra.admission.manifests import Object
from infra.admission.rehearsal import rehearse
from infra.admission.situation import Situation, Workload
from infra.admission.verdict import Verdict
from infra.capacity import FlexStart
from infra.placement import way
from infra.stack_file import Settings
from infra.submission import submission

_NO_IMAGE = ""
"""The queue does not look at it."""


def rehearse_stack(settings: Settings, live: Iterable[Object] | None) -> Verdict:
    """What becomes of the stack's job when it is submitted to the plan's queues.

    `live`: the cluster's Workloads, which run on or wait. None: no cluster was asked, so nothing runs.
    """
    verdict = rehearse(situation(settings, live or ()), newcomer(settings))
    return verdict.model_copy(update={"unknown": tuple(_unknown(settings, asked=live is not None))})


def situation(settings: Settings, live: Iterable[Object]) -> Situation:
    """The plan's queues with the cluster's workloads, less an earlier one of the job, which goes before it comes."""
    placement, job = settings.scheduling.placement, newcomer(settings).name
    rendered = (
        cluster_queues.cluster_queue(name, team, settings.slices, placement) for name, team in settings.teams.items()
    )
    local = {(team.namespace, name): name for name, team in settings.teams.items()}
    found = manifests.workloads(live, local, _flavors(settings))
    return Situation(
        queues=tuple(map(manifests.queue, rendered)),
        workloads=tuple(workload for workload in found if workload.name != job),
        fair_sharing=settings.scheduling.fair_sharing,
    )


def newcomer(settings: Settings) -> Workload:
    """The job as the last that asks."""
    rendered = jobset.render(submission(settings, _NO_IMAGE))
    priority = cluster_queues.PRIORITIES[settings.job.priority]
    return manifests.of_jobset(rendered, settings.job.team, priority, _flavors(settings), now=math.inf)


def _flavors(settings: Settings) -> list[Object]:
    placement = settings.scheduling.placement
    return [flavors.resource_flavor(name, group, placement) for name, group in settings.slices.items()]


def _unknown(settings: Settings, *, asked: bool) -> Iterable[str]:
    groups = settings.job_groups
    if not asked:
        yield "no cluster was asked: rehearsed as if nothing else ran or waited"
    if way(groups.values(), settings.scheduling.placement) == "topology-aware":
        yield "topology-aware scheduling also counts free hosts: with one too few in a slice it waits"
    for name, group in groups.items():
        if isinstance(group.capacity, FlexStart):
            yield f"{name} is flex-start: an admitted job's pods wait until Google has the hosts of its slices"
