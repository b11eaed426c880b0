"""The review of a stack in the log of its preview, and in a file where a command waits for it.

Owns what the running program finds out for it: the bill of what is deployed, and what is in the cluster's queues.
"""

import asyncio
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pulumi

from infra import live_jobs
from infra.guard import Guard
from infra.job_spec import job_specs
from infra.outputs import deployed_bill
from infra.review.review import Known, review
from infra.review.table import as_text
from infra.review.tables import tables
from infra.settings.stack import Settings
from workloads.preflight_result import cache_folder, cached_all

REVIEW_FILE = "TPU_MULTISLICE_REVIEW_FILE"
"""Environment variable that names the file for the review as JSON."""


def tell_in_preview(settings: Settings, guard: Guard, at: datetime) -> None:
    """Log the review in a preview; in an `up`, which had one before, nothing."""
    if pulumi.runtime.is_dry_run():
        # The SDK waits for every output before the program ends.
        pulumi.Output.from_input(_tell(settings, guard, at))


async def _tell(settings: Settings, guard: Guard, at: datetime) -> None:
    deployed = await deployed_bill()
    # A stack that is not up has no cluster to look for. Without its cluster a stack has a bill, but pays nothing.
    endpoint = await guard.endpoint() if deployed else None
    found = review(
        pulumi.get_stack(),
        settings,
        Known(
            at=at,
            preflights=cached_all(job_specs(settings), cache_folder(os.environ)),
            deployed=deployed if endpoint else None,
            workloads=await _workloads(endpoint) if endpoint else None,
        ),
    )
    if REVIEW_FILE in os.environ:
        Path(os.environ[REVIEW_FILE]).write_text(found.model_dump_json())
    pulumi.log.info(f"review of {found.stack}\n\n{as_text(tables(found))}")


async def _workloads(endpoint: str) -> list[dict[str, Any]] | None:
    try:
        return await asyncio.to_thread(lambda: live_jobs.workloads(live_jobs.connect(endpoint)))
    except live_jobs.UNREACHABLE as error:
        # In general the Kubernetes provider ends the preview, and may do so before this is told.
        pulumi.log.warn(
            f"the cluster at {endpoint} does not answer ({error}), and Pulumi cannot preview JobSet and Kueue without"
            " it: run this where the cluster can be reached (`multislice doctor` finds out why it cannot)"
        )
        return None
