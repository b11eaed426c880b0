"""Injects a fault into a job of its own in the sandbox, and observes what becomes of the job."""

import re
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from etils import epath

from infra.cluster.kubernetes import Json
from infra.stack import names
from infra.stack.jobset import render
from infra.stack.settings.read import parse
from infra.stack.submission import submission
from multislice_run.records.lines import FailureRecord
from multislice_run.records.reader import read_failures
from multislice_run.worlds import Worlds
from tests.chain.stack import JOB, JOBSETS, NAMESPACE, Chain, ignore
from tests.faults.fault import SUSPENDED, Fault
from tests.faults.verdict import Observed, broken, observe
from tests.infra.recording import Values, stack_values

STEADY = "steady"
"""Name of the job of the stack, which no fault strikes."""


def declare(chain: Chain) -> Mapping[int, float]:
    """Bring the stack up, wait for the end of its job, and return the losses by step."""
    chain.engine_on(_settings(STEADY, {})).up(ignore)
    chain.wait_for_end(STEADY)
    return chain.losses(STEADY)


def inject(chain: Chain, fault: Fault, steady: Mapping[int, float]) -> tuple[Observed, tuple[str, ...]]:
    """Inject `fault` into a new job, and wait for its end. Return what was observed, and a sentence for each failed
    check. The job is removed, and its files are kept."""
    submit(chain, fault)
    try:
        if fault.at_step is not None:
            chain.wait_for_step(fault.name, fault.at_step)
        struck = time.time()
        fault.strike(chain, fault.name)
        if fault.expected.terminal != SUSPENDED:
            chain.wait_for_end(fault.name)
        seen = observed(chain, fault.name, struck)
    finally:
        chain.remove(fault.name)
    return seen, broken(fault.name, fault.expected, seen, steady)


def submit(chain: Chain, fault: Fault) -> None:
    """Create the fault's job."""
    fault.before(chain)
    chain.api.request("POST", JOBSETS, manifest(fault))


def manifest(fault: Fault) -> Json:
    """Return the fault's JobSet as the stack would, in its team's queue: the stack declares no queue for this job."""
    settings = parse(_settings(fault.name, fault.job))
    (job,) = settings.jobs.values()
    rendered: Json = render(submission(settings, job, "trainer@sha256:" + 64 * "0"))
    rendered["metadata"]["labels"][names.QUEUE_LABEL] = NAMESPACE
    fault.edit(rendered)
    return rendered


def _settings(name: str, job: Mapping[str, Any]) -> Values:
    values = stack_values("local")
    training = {**JOB["training"], **job.get("training", {})}
    values["job"] |= {**JOB, **job, "training": training, "name": name}
    return values


def observed(chain: Chain, job: str, struck: float) -> Observed:
    """Observe the job, which was struck at that time in seconds since the epoch."""
    batches = {int(line["step"]): int(line["batch"]) for line in chain.steps(job)}
    uid = chain.jobset(job).get("metadata", {}).get("uid", "none")
    world = Worlds(epath.Path(chain.job_folder(job)), uid).newest()
    seen = observe(chain.jobset(job).get("status", {}), world, chain.history(job), batches, struck)
    events = [
        event["message"]
        for event in chain.objects("events")
        if re.match(rf"{job}(-slice-|$)", event["involvedObject"]["name"])
    ]
    return replace(seen, conditions=_conditions(chain, job), events=tuple(events), failures=tuple(failures(chain, job)))


def failures(chain: Chain, job: str) -> list[FailureRecord]:
    """Return failure records of the job's hosts, including attempts that opened no run."""
    uid = chain.jobset(job).get("metadata", {}).get("uid", "none")
    return [record.failure for record in read_failures(epath.Path(chain.job_folder(job)), [], run_ids=[uid])]


def _conditions(chain: Chain, job: str) -> tuple[str, ...]:
    """Return the messages of the conditions of the job's JobSet and its Workload."""
    jobset = chain.jobset(job)
    uid = jobset.get("metadata", {}).get("uid", "none")
    workloads = chain.objects("workloads", f"kueue.x-k8s.io/job-uid={uid}")
    conditions = [each.get("status", {}).get("conditions", ()) for each in (jobset, *workloads)]
    return tuple(condition.get("message", "") for one in conditions for condition in one)
