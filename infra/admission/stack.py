"""The stack's jobs before the stack's queues.

Owns what is rehearsed when a stack is previewed: queues, flavors and JobSet as the plan renders
them, and the workloads that a cluster says it has. Asking a cluster is the business of the caller
(`infra.live_jobs.workloads`).
"""

from collections.abc import Iterable, Sequence

from infra import cluster_queues, flavors, jobset
from infra.admission import manifests
from infra.admission.manifests import Object
from infra.admission.rehearsal import rehearse
from infra.admission.situation import Situation, Workload
from infra.admission.verdict import Verdict
from infra.capacity import FlexStart
from infra.placement import way
from infra.settings.jobs import Job
from infra.settings.stack import Settings
from infra.submission import submission

_NO_IMAGE = ""
"""The queue does not look at it."""
_LAST_SECONDS = 1e12
"""After all that has come, in seconds since 1970."""


def rehearse_stack(settings: Settings, live: Sequence[Object] | None) -> dict[str, Verdict]:
    """What becomes of each of the stack's jobs, by name, when they are submitted to the plan's queues one by one.

    `live`: the cluster's Workloads, which run on or wait. None: no cluster was asked, so nothing runs.
    """
    found = situation(settings, live or ())
    verdicts: dict[str, Verdict] = {}
    for job, workload in zip(settings.jobs.values(), newcomers(settings), strict=True):
        unknown = tuple(_unknown(settings, job, asked=live is not None))
        verdicts[job.name] = rehearse(found, workload).model_copy(update={"unknown": unknown})
        found = found.model_copy(update={"workloads": (*found.workloads, workload)})
    return verdicts


def situation(settings: Settings, live: Iterable[Object]) -> Situation:
    """The plan's queues with the cluster's workloads, less earlier ones of the jobs, which go before they come."""
    placement, jobs = settings.scheduling.placement, {workload.name for workload in newcomers(settings)}
    rendered = (
        cluster_queues.cluster_queue(name, team, settings.slices, placement) for name, team in settings.teams.items()
    )
    local = {(team.namespace, name): name for name, team in settings.teams.items()}
    found = manifests.workloads(live, local, _flavors(settings))
    return Situation(
        queues=tuple(map(manifests.queue, rendered)),
        workloads=tuple(workload for workload in found if workload.name not in jobs),
        fair_sharing=settings.scheduling.fair_sharing,
    )


def newcomers(settings: Settings) -> list[Workload]:
    """The jobs as the last that ask, in their order."""
    return [
        manifests.of_jobset(
            jobset.render(submission(settings, job, _NO_IMAGE)),
            job.team,
            cluster_queues.PRIORITIES[job.priority],
            _flavors(settings),
            now=_LAST_SECONDS + index,
        )
        for index, job in enumerate(settings.jobs.values())
    ]


def _flavors(settings: Settings) -> list[Object]:
    placement = settings.scheduling.placement
    return [flavors.resource_flavor(name, group, placement) for name, group in settings.slices.items()]


def _unknown(settings: Settings, job: Job, *, asked: bool) -> Iterable[str]:
    groups = settings.groups_of(job)
    if not asked:
        yield "no cluster was asked: rehearsed as if nothing else ran or waited"
    if way(groups.values(), settings.scheduling.placement) == "topology-aware":
        yield "topology-aware scheduling also counts free hosts: with one too few in a slice it waits"
    for name, group in groups.items():
        if isinstance(group.capacity, FlexStart):
            yield f"{name} is flex-start: an admitted job's pods wait until Google has the hosts of its slices"
