"""Reads a trace from a cluster's Workloads, Kueue's events about them, and the flavors that they have:
`kubectl get workloads,events,resourceflavors -A -o json`.

A workload's hours are those in which it was admitted. Its status counts earlier admissions
(`accumulatedPastExecutionTimeSeconds`); events say when each began, and also when one ended that no status counts.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from statistics import median
from typing import Any

from infra.review.replay.fleet import chips_of_topology
from infra.review.replay.trace import MOST_HOURS, Job, Rows, Trace
from infra.stack.manifests import Object, condition, is_true, moment, requests
from infra.stack.names import SECONDS_PER_HOUR, TOPOLOGY_LABEL, TPU_RESOURCE

_SHORTEST_SECONDS = 1.0
"""Least time of a workload that was admitted. Kubernetes knows times in whole seconds."""


def read_workloads(
    items: Sequence[Object],
    source: str,
    days: float | None,
    save_hours: float | None,
    flavors: Iterable[Object] = (),
    now: float = 0.0,
) -> Trace:
    """Return the trace of a list of Workloads, Events and ResourceFlavors; other objects are left out.

    Workloads say nothing about saves, so all jobs save every `save_hours`. `flavors` are further ResourceFlavors.
    Their topology is that of workloads that name none. `now` is when the list was read, in seconds since the epoch.
    Default: the latest time in it.

    Raises:
        TraceError: an object lacks what its kind has, or the jobs have errors.
    """
    rows, notes = Rows([], []), list[str]()
    topologies = dict(_labels(each) for each in flavors)
    topologies |= {name: labels for _, (name, labels) in _each(items, "ResourceFlavor", _labels, rows)}
    events = defaultdict[str, list[tuple[float, str]]](list)
    for _, (uid, at, reason) in _each(items, "Event", _event, rows):
        now = max(now, at)
        events[uid].append((at, reason))
    now = max([now, *(at for _, at in _each(items, "Workload", _latest, Rows([], [])))])
    unknown = list[Job]()
    left_out, old = 0, 0

    for row, job in _each(items, "Workload", lambda item: _job(item, topologies, events, now, save_hours), rows):
        if job is None:
            left_out += 1
        elif now / SECONDS_PER_HOUR - job.submitted > MOST_HOURS:
            old += 1
        else:
            (rows.jobs if job.hours > 0 else unknown).append(replace(job, row=row))
    rows.jobs += _with_typical_hours(unknown, rows.jobs)
    if unknown:
        notes.append(f"{len(unknown)} jobs have not run yet; their hours are the median of their team")
    if left_out:
        notes.append(f"left out {left_out} workloads without chips, queue or topology, or with slices of two shapes")
    if old:
        notes.append(
            f"left out {old} workloads that were submitted more than 366 days before the last time of the list"
        )
    return rows.trace(source, days, notes, until=now / SECONDS_PER_HOUR)


def _each[Value](
    items: Iterable[Object], kind: str, read: Callable[[Object], Value], rows: Rows
) -> Iterator[tuple[int, Value]]:
    """Yield the rows of the objects of a kind with what `read` returns. Report those that it cannot read."""
    for row, item in enumerate(items, 1):
        if item.get("kind") != kind:
            continue
        try:
            value = read(item)
        except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
            match error:
                case KeyError():
                    got = f"one without {error}"
                case ValueError():
                    got = f"one with a wrong value: {error}"
                case _:
                    got = "one with null, or a value of another type, where an object, a list or a text belongs"
            rows.errors.append((row, f"items.{row - 1} must be a whole {kind}, got {got}; read it again"))
        else:
            yield row, value


def _job(
    item: Object,
    topologies: Mapping[str, Mapping[str, str]],
    events: Mapping[str, list[tuple[float, str]]],
    now: float,
    save_hours: float | None,
) -> Job | None:
    """Return a job without its row, with 0 hours if it has not run; `None` if it cannot be one of a trace."""
    metadata, spec, status = item["metadata"], item["spec"], item.get("status", {})
    chips, shapes = 0, set[str]()
    assigned: list[Any] = (status.get("admission") or {}).get("podSetAssignments", [])
    of_set = {each["name"]: each.get("flavors", {}).get(TPU_RESOURCE, "") for each in assigned}
    for pods in spec["podSets"]:
        pod = pods["template"]["spec"]
        if count := int(requests(pod).get(TPU_RESOURCE, 0)):
            chips += count * pods["count"]
            flavor = of_set.get(pods["name"], "")
            labels = {**topologies.get(flavor, {}), **pod.get("nodeSelector", {})}
            shapes.add(labels.get(TOPOLOGY_LABEL, ""))
    team = (status.get("admission") or {}).get("clusterQueue") or metadata["namespace"]
    shape = shapes.pop() if len(shapes) == 1 else ""
    if not chips_of_topology(shape) or not spec.get("queueName"):
        return None
    slices = max(1, chips // chips_of_topology(shape))
    submitted = datetime.fromisoformat(metadata["creationTimestamp"]).timestamp() / SECONDS_PER_HOUR
    hours = _hours(item, events.get(metadata["uid"], []), now)
    name = f"{metadata['namespace']}/{metadata['name']}"
    return Job(0, name, str(team), shape, slices, submitted, hours, int(spec.get("priority", 0)), save_hours)


def _hours(item: Object, events: Iterable[tuple[float, str]], now: float) -> float:
    """Return the hours in which a workload was admitted, up to `now` for one that still runs."""
    past = float(item.get("status", {}).get("accumulatedPastExecutionTimeSeconds", 0))
    ended = moment(condition(item, "Finished"), "lastTransitionTime", now) if is_true(item, "Finished") else now
    if is_true(item, "Admitted"):
        begun = moment(condition(item, "Admitted"), "lastTransitionTime", ended)
        return (past + max(_SHORTEST_SECONDS, ended - begun)) / SECONDS_PER_HOUR
    begun, seconds = 0.0, 0.0
    for at, reason in sorted(events):
        if reason == "Admitted":
            begun = at
        elif begun and reason.startswith("Evicted"):
            seconds, begun = seconds + at - begun, 0.0
    return max(past, seconds) / SECONDS_PER_HOUR


def _labels(flavor: Object) -> tuple[str, Mapping[str, str]]:
    return flavor["metadata"]["name"], {**flavor.get("spec", {}).get("nodeLabels", {})}


def _event(item: Object) -> tuple[str, float, str]:
    at = moment(item, "eventTime", 0.0) or moment(item, "lastTimestamp", 0.0)
    return str(item.get("involvedObject", {}).get("uid", "")), at, str(item.get("reason", ""))


def _latest(item: Object) -> float:
    changes = (moment(each, "lastTransitionTime", 0.0) for each in item.get("status", {}).get("conditions", []))
    return max(moment(item["metadata"], "creationTimestamp", 0.0), *changes, 0.0)


def _with_typical_hours(unknown: Iterable[Job], known: Sequence[Job]) -> Iterable[Job]:
    """Yield jobs with the median hours of their team's others, of all others, or one hour."""
    of_team = defaultdict[str, list[float]](list)
    for job in known:
        of_team[job.team].append(job.hours)
    every = [job.hours for job in known] or [1.0]
    for job in unknown:
        yield replace(job, hours=median(of_team[job.team] or every))
