"""Fleets and traces for tests, in few words."""

from collections.abc import Mapping
from typing import Any

from infra.review.admission.situation import FlavorQuota, Queue
from infra.review.replay.fleet import Fleet, Group
from infra.review.replay.results import Summary, summarize
from infra.review.replay.simulation import Conditions, Replayed, replay
from infra.review.replay.trace import Distribution, Job, Trace, draw, places
from tests.infra.review.admission.situations import queue

USUAL: dict[str, Any] = {
    "seed": 1,
    "failures_per_day": 0.0,
    "repair_hours": 2.0,
    "spares": 0,
    "restart_hours": 0.0,
    "lead_hours": 1.0,
    "maintenance_days": None,
    "maintenance_hours": 1.0,
}


def group(name: str = "x", chips: int = 32, topology: str = "4x4", slice_chips: int = 16, **more: Any) -> Group:
    more = {"usd_per_chip_hour": 2.0} | more
    return Group(name=name, generation="v6e", topology=topology, slice_chips=slice_chips, chips=chips, **more)


def fleet(quotas: Mapping[str, int | FlavorQuota], *groups: Group, **changes: Any) -> Fleet:
    """Teams that share slices of 4x4, each with its quota of flavor `x`."""
    queues = [queue(team, {"x": chips}, **changes) for team, chips in quotas.items()]
    total = sum(each.flavors[0].nominal for each in queues)
    return of_queues(queues, *(groups or (group(chips=total),)))


def of_queues(queues: list[Queue], *groups: Group) -> Fleet:
    teams = {each.name: each.name for each in queues}
    return Fleet("test", tuple(queues), {each.name: each for each in groups}, False, teams)


def job(name: str, at: float = 0, hours: float = 1, team: str = "a", **more: Any) -> Job:
    usual: dict[str, Any] = {"row": 1, "shape": "4x4", "slices": 1, "priority": 500, "save_hours": None}
    return Job(name=name, team=team, submitted=at, hours=hours, **usual | more)


def trace(*jobs: Job, hours: float = 24) -> Trace:
    return Trace("test", tuple(sorted(jobs, key=lambda each: each.submitted)), hours)


def replayed(of: Trace, on: Fleet, **conditions: Any) -> Replayed:
    return replay(of, on, Conditions(**USUAL | conditions), places(of, on))


def summary(of: Trace, on: Fleet, starved_hours: float = 24, **conditions: Any) -> Summary:
    return summarize(replayed(of, on, **conditions), starved_hours)


def stream(team: str, per_day: float, **more: Any) -> dict[str, Any]:
    usual = {"shape": "4x4", "slices": [1, 2], "hours": {"median": 2, "p90": 6}, "save_minutes": 30, "peak_share": 0.5}
    return {"team": team, "jobs_per_day": per_day} | usual | more


def drawn(*streams: dict[str, Any], days: float, seed: int = 3) -> Trace:
    return draw(Distribution.model_validate({"days": days, "jobs": streams}), seed)
