"""The Kubernetes objects of a job of a stack."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from infra.stack import jobset
from infra.stack.cost import usd_per_job_hour
from infra.stack.kueue import local_queue
from infra.stack.manifests import manifest, mark_ours
from infra.stack.names import PRICE_KEY, price_name, secret_name
from infra.stack.submission import Submission

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
