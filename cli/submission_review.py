"""Reviews a job that a member submits, as far as the member may see the queues."""

import os
from datetime import UTC, datetime

from cli.answer import Halt
from infra.cluster.kubernetes import FORBIDDEN, UNREACHABLE, ApiError, ApiServer, Json
from infra.cluster.running_jobs import workloads as all_workloads
from infra.review.review import Known, Review, review
from infra.stack.names import WORKLOADS
from infra.stack.published import Published
from infra.stack.settings.stack import Settings
from infra.stack.submission import job_specs
from workloads.preflight_result import cache_folder, cached_all

_OTHERS_HIDDEN = "simulated without the jobs of other teams, which you cannot see"


def review_submission(api: ApiServer, published: Published, settings: Settings) -> Review:
    """Return price and simulated admission of the jobs in `settings` next to the workloads that this user may see.

    Raise Halt if the cluster does not list them.
    """
    live, hidden = _workloads(api, published.namespace)
    known = Known(
        at=datetime.now(UTC),
        preflights=cached_all(job_specs(settings), cache_folder(os.environ)),
        deployed=None,
        workloads=live,
    )
    found = review(published.stack, settings, known)
    if not hidden:
        return found
    jobs = [
        job.model_copy(update={"admission": job.admission.model_copy(update={"assumed": _OTHERS_HIDDEN})})
        for job in found.jobs
    ]
    return found.model_copy(update={"jobs": tuple(jobs)})


def _workloads(api: ApiServer, namespace: str) -> tuple[list[Json], bool]:
    """Return the Workloads of the cluster, or of the namespace only, and whether others are hidden from this user."""
    try:
        try:
            return all_workloads(api), False
        except ApiError as error:
            if error.status != FORBIDDEN:
                raise
            return api.request("GET", WORKLOADS.format(namespace))["items"], True
    except UNREACHABLE as error:
        raise Halt(f"expected the cluster to list the jobs of the queue, got: {error}") from None
