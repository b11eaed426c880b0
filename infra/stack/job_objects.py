"""The Kubernetes objects of a job of a stack: its queue, its price, its Secret and its JobSet."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infra.stack import jobset
from infra.stack.cost import usd_per_job_hour
from infra.stack.kueue import local_queue
from infra.stack.manifests import Manifest, manifest, mark_ours
from infra.stack.names import PRICE_KEY, price_name, secret_name
from infra.stack.submission import Submission

if TYPE_CHECKING:
    import pulumi


@dataclass(frozen=True)
class JobObjects:
    """The objects of a job, in the order in which `up` creates them."""

    queue: Manifest
    """LocalQueue of only this job, so that it can be paused."""
    price: dict[str, Any] | None
    """ConfigMap with the price per hour. `None` if it is unknown."""
    secret: dict[str, Any] | None
    """Secret with the environment variables that Pulumi keeps as secrets. `None` if the job has none."""
    jobset: Manifest

    def __iter__(self) -> Iterator[Manifest]:
        return (each for each in (self.queue, self.price, self.secret, self.jobset) if each)


def job_objects(submitted: Submission, secrets: Mapping[str, "pulumi.Input[str]"]) -> JobObjects:
    """Return the objects of a job. `secrets` has the value of each of its variables, by name."""
    job, namespace = submitted.job, submitted.namespace
    usd_per_hour = usd_per_job_hour(submitted.fleet, job)
    data, texts = {PRICE_KEY: str(usd_per_hour)}, {name: secrets[name] for name in submitted.secrets}
    return JobObjects(
        queue=mark_ours(local_queue(job.team, submitted.fleet.teams[job.team], job)),
        price=None if usd_per_hour is None else manifest("v1", "ConfigMap", price_name(job.name), namespace, data=data),
        secret=manifest("v1", "Secret", secret_name(job.name), namespace, stringData=texts) if texts else None,
        jobset=jobset.render(submitted),
    )
