"""The Kubernetes objects of a job of a stack, and of jobs and calls that a member of a team submits."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from infra.stack import jobset
from infra.stack.cost import usd_per_job_hour
from infra.stack.kueue import local_queue
from infra.stack.manifests import Manifest, manifest, mark_ours
from infra.stack.names import (
    FUNCTION_ANNOTATION,
    HOURS_PER_DAY,
    PRICE_KEY,
    SECONDS_PER_HOUR,
    SECONDS_PER_MINUTE,
    SERVICE_ACCOUNT,
    jobs_folder,
    price_name,
    secret_name,
)
from infra.stack.published import Published
from infra.stack.settings.jobs import AnyJob, FunctionJob, Functions, JobSlices, Priority
from infra.stack.settings.stack import FleetSpec, Settings
from infra.stack.submission import Submission, submission_to
from workloads.spec import CALL_KEY_VARIABLE, CALL_SPEC_VARIABLE, CallSpec

if TYPE_CHECKING:
    import pulumi


def job_objects(submitted: Submission, secrets: Mapping[str, "pulumi.Input[str]"]) -> dict[str, Any]:
    """Return the manifests of a job by kind, in the order in which `up` creates them.

    They are its own LocalQueue, a ConfigMap with its price if that is known, a Secret if it has secrets, and its
    JobSet. `secrets` has the values of its secrets by name.
    """
    job, namespace, usd_per_hour = submitted.job, submitted.namespace, usd_per_job_hour(submitted.fleet, submitted.job)
    objects: dict[str, Any] = {"LocalQueue": mark_ours(local_queue(job.team, submitted.fleet.teams[job.team], job))}
    if usd_per_hour is not None:
        data = {PRICE_KEY: str(usd_per_hour)}
        objects["ConfigMap"] = manifest("v1", "ConfigMap", price_name(job.name), namespace, data=data)
    if submitted.secrets:
        data = {name: secrets[name] for name in submitted.secrets}
        objects["Secret"] = manifest("v1", "Secret", secret_name(job.name), namespace, stringData=data)
    return {**objects, "JobSet": jobset.render(submitted)}


KEPT_SECONDS = HOURS_PER_DAY * SECONDS_PER_HOUR
"""Seconds between a call's end and the deletion of its JobSet, with its logs and the key that verifies its result."""
GRACE_SECONDS = 10
"""Seconds in which a host of a call has to end. It needs no time except for the kernel's clean-up."""


def submitted_jobset(published: Published, settings: Settings, job: AnyJob) -> Manifest:
    """Return the JobSet of a job that a member submits to the queue of the team. `settings` contain it.

    Its files are below the team's own folder of the bucket, because the pods of the team may write nowhere else.
    """
    fleet = FleetSpec.of(settings)
    return team_jobset(fleet, job, published.image, usd_per_job_hour(fleet, job))


def team_jobset(
    fleet: FleetSpec, job: AnyJob, image: str | None, usd_per_hour: float | None, account: str = SERVICE_ACCOUNT
) -> Manifest:
    """Return the JobSet of a job in the queue of its team. Its pods have a known price and a service account."""
    files = f"gs://{fleet.bucket}/{jobs_folder(fleet.teams[job.team].namespace)}"
    usual = submission_to(fleet, job, image, files=files, secrets=())
    return jobset.render(replace(usual, queue=job.team, usd_per_hour=usd_per_hour, service_account=account))


@dataclass(frozen=True)
class CallJob:
    """What a call adds to the settings for its JobSet."""

    spec: CallSpec
    function: str
    team: str
    group: str
    priority: Priority


def call_jobset(call: CallJob, settings: Published) -> dict[str, Any]:
    """Return the JobSet of a call."""
    job, files = _function_job(call, settings.functions), call.spec.folder.removesuffix(f"/{call.spec.id}")
    usual = submission_to(settings.fleet, job, settings.image, files=files, secrets=(CALL_KEY_VARIABLE,))
    manifest: dict[str, Any] = jobset.render(replace(usual, queue=call.team))
    manifest["metadata"].setdefault("annotations", {})[FUNCTION_ANNOTATION] = call.function
    manifest["spec"]["ttlSecondsAfterFinished"] = KEPT_SECONDS
    return manifest


def _function_job(call: CallJob, functions: Functions) -> FunctionJob:
    # The hosts end a function that takes too long and report where it was. Kueue ends a little later those that cannot.
    max_seconds = math.ceil(SECONDS_PER_HOUR * call.spec.max_hours + 2 * SECONDS_PER_MINUTE * call.spec.start_minutes)
    return FunctionJob(
        name=call.spec.id,
        team=call.team,
        slices=JobSlices(group=call.group, count=call.spec.slices.count),
        call=call.spec,
        backend=call.spec.backend,
        pathways=functions.pathways if call.spec.backend == "pathways" else None,
        priority=call.priority,
        max_restarts=0,
        grace_seconds=GRACE_SECONDS,
        run_as_user=functions.run_as_user,
        privileged=functions.privileged,
        max_hours=max_seconds / SECONDS_PER_HOUR,
    )


def call_secret(call: Mapping[str, Any], private_key: str) -> dict[str, Any]:
    """Return the Secret with the key of a call. `call` is the JobSet on the API server; they are deleted together."""
    metadata = call["metadata"]
    owner = {key: call[key] for key in ("apiVersion", "kind")} | {key: metadata[key] for key in ("name", "uid")}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": secret_name(metadata["name"]),
            "namespace": metadata["namespace"],
            "ownerReferences": [owner],
        },
        "type": "Opaque",
        "stringData": {CALL_KEY_VARIABLE: private_key},
    }


def call_spec_of(manifest: Mapping[str, Any]) -> CallSpec | None:
    """Return the call that a JobSet is for; `None` if it is not for a call."""
    for replicated in manifest["spec"]["replicatedJobs"]:
        for container in replicated["template"]["spec"]["template"]["spec"]["containers"]:
            for variable in container.get("env", []):
                if variable["name"] == CALL_SPEC_VARIABLE:
                    return CallSpec.model_validate_json(variable["value"])
    return None
