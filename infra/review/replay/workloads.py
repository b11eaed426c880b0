"""Reads a trace from a cluster's Workloads, Kueue's events about them, and the flavors that they have:
`kubectl get workloads,events,resourceflavors -A -o json`.

A workload's hours are those in which it was admitted. Its status counts earlier admissions
(`accumulatedPastExecutionTimeSeconds`); events say when each began, and also when one ended that no status counts.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from infra.review.admission import manifests
from infra.review.replay.fleet import chips_of_topology
from infra.review.replay.trace import Job, Rows, Trace
from infra.stack.manifests import Object, condition, is_true, moment
from infra.stack.names import TOPOLOGY_LABEL, TPU_RESOURCE

_SECONDS_PER_HOUR = 3600


def read_workloads(
    items: Sequence[Object], source: str, days: float | None, save_hours: float | None, flavors: Iterable[Object] = ()
) -> Trace:
    """Return the trace of a list of Workloads, Events and ResourceFlavors; other objects are left out.

    Workloads say nothing about saves, so all jobs save every `save_hours`. `flavors` are further ResourceFlavors.
    Their topology is that of workloads that name none.

    Raises:
        TraceError: an object lacks what a Workload has, or the jobs have errors.
    """
    rows, notes = Rows([], []), list[str]()
    listed = [*flavors, *(each for each in items if each.get("kind") == "ResourceFlavor")]
    topologies = {each["metadata"]["name"]: each.get("spec", {}).get("nodeLabels", {}) for each in listed}
    found = [each for each in enumerate(items, 1) if each[1].get("kind") == "Workload"]
    events = _events(items)
    now = max((_latest(item) for _, item in found if isinstance(item.get("status"), Mapping)), default=0.0)
    unknown = list[Job]()
    left_out = 0
    for row, item in found:
        try:
            job = _job(row, item, topologies, events, now, save_hours)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            text = f"items.{row - 1} must be a whole Workload, got one without a valid {error}; read it again"
            rows.errors.append((row, text))
            continue
        if job is None:
            left_out += 1
        elif job.hours > 0:
            rows.jobs.append(job)
        else:
            unknown.append(job)
    rows.jobs += _with_typical_hours(unknown, rows.jobs)
    if unknown:
        notes.append(f"{len(unknown)} jobs have not run yet; their hours are the median of their team")
    if left_out:
        notes.append(f"left out {left_out} workloads without chips, queue or topology, or with slices of two shapes")
    return rows.trace(source, days, notes, until=now / _SECONDS_PER_HOUR)


def _job(
    row: int,
    item: Object,
    topologies: Mapping[str, Mapping[str, str]],
    events: Mapping[str, list[tuple[float, str]]],
    now: float,
    save_hours: float | None,
) -> Job | None:
    """Return a job, with 0 hours if it has not run; `None` if it cannot be one of a trace."""
    metadata, spec, status = item["metadata"], item["spec"], item.get("status", {})
    chips, shapes = 0, set[str]()
    assigned: list[Any] = (status.get("admission") or {}).get("podSetAssignments", [])
    of_set = {each["name"]: each.get("flavors", {}).get(TPU_RESOURCE, "") for each in assigned}
    for pods in spec["podSets"]:
        pod = pods["template"]["spec"]
        if count := int(manifests.requests(pod).get(TPU_RESOURCE, 0)):
            chips += count * pods["count"]
            flavor = of_set.get(pods["name"], "")
            labels = {**topologies.get(flavor, {}), **pod.get("nodeSelector", {})}
            shapes.add(labels.get(TOPOLOGY_LABEL, ""))
    team = (status.get("admission") or {}).get("clusterQueue") or metadata["namespace"]
    shape = shapes.pop() if len(shapes) == 1 else ""
    if not chips_of_topology(shape) or not spec.get("queueName"):
        return None
    slices = max(1, chips // chips_of_topology(shape))
    submitted = moment(metadata, "creationTimestamp", 0.0) / _SECONDS_PER_HOUR
    hours = _hours(item, events.get(metadata["uid"], []), now)
    name = f"{metadata['namespace']}/{metadata['name']}"
    return Job(row, name, team, shape, slices, submitted, hours, int(spec.get("priority", 0)), save_hours)


def _hours(item: Object, events: Iterable[tuple[float, str]], now: float) -> float:
    """Return the hours in which a workload was admitted, up to `now` for one that still runs."""
    past = float(item.get("status", {}).get("accumulatedPastExecutionTimeSeconds", 0))
    ended = moment(condition(item, "Finished"), "lastTransitionTime", now) if is_true(item, "Finished") else now
    if is_true(item, "Admitted"):
        return (
            past + max(0.0, ended - moment(condition(item, "Admitted"), "lastTransitionTime", ended))
        ) / _SECONDS_PER_HOUR
    begun, seconds = 0.0, 0.0
    for at, reason in sorted(events):
        if reason == "Admitted":
            begun = at
        elif begun:
            seconds, begun = seconds + at - begun, 0.0
    return max(past, seconds) / _SECONDS_PER_HOUR


def _events(items: Iterable[Object]) -> Mapping[str, list[tuple[float, str]]]:
    """Return when Kueue admitted and stopped workloads, by their UID."""
    found = defaultdict[str, list[tuple[float, str]]](list)
    for item in items:
        if item.get("kind") == "Event":
            about, reason = item.get("involvedObject", {}), str(item.get("reason", ""))
            if about.get("kind") == "Workload" and (reason == "Admitted" or reason.startswith("Evicted")):
                at = moment(item, "eventTime", 0.0) or moment(item, "lastTimestamp", 0.0)
                found[about.get("uid", "")].append((at, reason))
    return found


def _latest(item: Object) -> float:
    listed = item["status"].get("conditions", [])
    return max((moment(each, "lastTransitionTime", 0.0) for each in listed), default=0.0)


def _with_typical_hours(unknown: Iterable[Job], known: Sequence[Job]) -> Iterable[Job]:
    """Yield jobs with the median hours of their team's others, of all others, or one hour."""
    of_team = defaultdict[str, list[float]](list)
    for job in known:
        of_team[job.team].append(job.hours)
    every = [job.hours for job in known] or [1.0]
    for job in unknown:
        yield replace(job, hours=median(of_team[job.team] or every))
