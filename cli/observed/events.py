"""Reads the warnings about a job, and finds the attempt that each belongs to.

A restart deletes the Jobs and pods of all slices and creates new ones, the Jobs under the same names. Two attempts may
end within a second, so it is the uid of an event's object that counts, not its time. If pods stay, only the files of
the job have its attempts (`JobStatus.with_files`).
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from cli.observed.snapshot import Event
from infra.cluster.job_pods import restarts_before
from infra.stack.manifests import Object, moment

_MAX_EVENTS = 500
"""Largest number of warnings about one job, the newest ones. The API server keeps events for an hour."""
_CREATED_POD = re.compile(r"Created pod: (\S+)")
"""The Job controller's message about a pod that it created (kubernetes/pkg/controller/controller_utils.go)."""


def warnings_of(
    jobset: Object,
    workload: str,
    events: Mapping[str, Sequence[tuple[int, Object]]],
    jobs: Collection[Object],
    pods: Collection[Object],
    at: float,
) -> tuple[Event, ...]:
    """Return the warnings about a job, newest first.

    Args:
        jobset: the JobSet.
        workload: name of its Workload.
        events: all events of its namespace, as `index_events` returns them.
        jobs: its Jobs that exist.
        pods: its pods that exist.
        at: time of events that have none.
    """
    created = moment(jobset["metadata"], "creationTimestamp", 0.0)
    names = {jobset["metadata"]["name"], workload} | {pod["metadata"]["name"] for pod in pods}
    jobs_of, hosts = _names(jobset)
    about = dict(each for key in (*(names | jobs_of), *(f"{host}-" for host in hosts)) for each in events.get(key, ()))
    found = [about[place] for place in sorted(about) if _last(about[place], at) >= created]
    status = jobset.get("status", {})
    # Between two attempts no Job exists. After its end a JobSet deletes those that still run.
    last = status.get("restarts", 0) - (0 if "terminalState" in status else 1)
    alone = job_restarts(jobset)
    attempts = _attempts(found, jobs, pods, {name: last + alone.get(name, 0) for name in jobs_of})
    told = [_event(each, at, attempts) for each in found if each.get("type") == "Warning"]
    return tuple(sorted(told, key=lambda event: event.at, reverse=True)[:_MAX_EVENTS])


def index_events(events: Iterable[Object]) -> Mapping[str, Sequence[tuple[int, Object]]]:
    """Return the events with their places in the list, by the name of their object, and by its part up to the last
    dash, because the names of pods end at random."""
    found: defaultdict[str, list[tuple[int, Object]]] = defaultdict(list)
    for place, event in enumerate(events):
        name = event["involvedObject"].get("name", "")
        for key in (name, "".join(name.rpartition("-")[:2])):
            found[key].append((place, event))
    return found


def job_restarts(jobset: Object) -> dict[str, int]:
    """Return how often single Jobs restarted, by the name of the Job."""
    listed: list[dict[str, Any]] = jobset.get("status", {}).get("replicatedJobsStatus", [])
    return {
        f"{jobset['metadata']['name']}-{each['name']}-{index}": count
        for each in listed
        for index, count in enumerate(each.get("jobRestarts", ()))
    }


def restarts_counted(status: Mapping[str, Any]) -> int:
    """Return how many restarts by JobSet count, of all slices and of single ones, by the status of the JobSet."""
    single = (sum(each.get("jobRestartsCountTowardsMax", ())) for each in status.get("replicatedJobsStatus", ()))
    return status.get("restartsCountTowardsMax", 0) + sum(single)


def _names(jobset: Object) -> tuple[set[str], set[str]]:
    """Return the names of the JobSet's Jobs, and those of its pods without their random suffixes."""
    jobs: set[str] = set()
    pods: set[str] = set()
    for job in jobset["spec"]["replicatedJobs"]:
        for index in range(job.get("replicas", 1)):
            name = f"{jobset['metadata']['name']}-{job['name']}-{index}"
            jobs.add(name)
            pods |= {f"{name}-{host}" for host in range(job["template"]["spec"].get("parallelism", 1))}
    return jobs, pods


def _event(found: Object, at: float, attempts: Mapping[str, int]) -> Event:
    about, reason = found["involvedObject"], found.get("reason", "")
    return Event(
        at=_last(found, at),
        kind=about.get("kind", ""),
        name=about["name"],
        reason=reason,
        message=found.get("message", ""),
        node=(found.get("source") or {}).get("host", ""),
        attempt=attempts.get(about.get("uid", "")),
    )


def _attempts(
    events: Sequence[Object], jobs: Collection[Object], pods: Collection[Object], gone: Mapping[str, int]
) -> dict[str, int]:
    """Return the number of restarts before each Job and pod was created, by its uid.

    `gone` has, by name, the attempt of the newest Job of a name of which none exists.
    """
    known = {each["metadata"]["uid"]: restarts_before(each) for each in (*jobs, *pods)}
    present = {job["metadata"]["name"]: job["metadata"]["uid"] for job in jobs}
    for name, uids in _jobs_by_age(events).items():
        # Each Job leaves events, because it creates pods. The cluster forgets those of the oldest Jobs first.
        last = known[present[name]] - 1 if name in present else gone.get(name, 0)
        for back, uid in enumerate(reversed([uid for uid in uids if uid != present.get(name)])):
            known.setdefault(uid, last - back)
    created = _jobs_by_pod(events)
    for event in events:
        about = event["involvedObject"]
        if about.get("kind") == "Pod" and (job := created.get(about["name"], "")) in known:
            known.setdefault(about.get("uid", ""), known[job])
    return known


def _jobs_by_age(events: Iterable[Object]) -> Mapping[str, list[str]]:
    """Return the uids of the Jobs of each name, oldest first."""
    first: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for event in events:
        about = event["involvedObject"]
        if about.get("kind") == "Job" and about.get("uid"):
            uids, began = first[about["name"]], moment(event, "firstTimestamp", _last(event, 0.0))
            uids[about["uid"]] = min(began, uids.get(about["uid"], began))
    return {name: sorted(uids, key=lambda uid: uids[uid]) for name, uids in first.items()}


def _jobs_by_pod(events: Iterable[Object]) -> dict[str, str]:
    """Return the uid of the Job that created each pod, by the name of the pod."""
    return {
        found[1]: event["involvedObject"].get("uid", "")
        for event in events
        if (found := _CREATED_POD.search(event.get("message") or ""))
    }


def _last(event: Object, otherwise: float) -> float:
    made = moment(event["metadata"], "creationTimestamp", otherwise)
    return moment(event, "lastTimestamp", moment(event, "eventTime", made))
