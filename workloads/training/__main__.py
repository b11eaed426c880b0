"""`python -m workloads.training`: one host's process of a training job.

Owns the command line and the reading of the job's own variables; what the process does is up to `host`.
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Mapping

from pydantic import ValidationError

from workloads.spec import (
    IMAGE_VARIABLE,
    JOB_SPEC_VARIABLE,
    PRICE_VARIABLE,
    RUN_ID_VARIABLE,
    START_VARIABLE,
    JobSpec,
)
from workloads.training.failures import InvalidSpec

DESCRIPTION = f"""\
Train one job as one of its host processes; `report DIR` writes what became of a job's run as an HTML file instead.
To train there are no arguments; the environment says all:

  {JOB_SPEC_VARIABLE:<30} the job specification as JSON (workloads/spec/job.py)
  {RUN_ID_VARIABLE:<30} name of this submission of the job
  {START_VARIABLE:<30} restarts of it before this start
  {IMAGE_VARIABLE:<30} container image with its digest, for the record (optional)
  {PRICE_VARIABLE:<30} what all slices of the job cost in USD per hour, for the record (optional)
  TPU_WORKER_HOSTNAMES           hosts of this slice, comma separated, in worker order (set by GKE)
  TPU_WORKER_ID                  this host's place among them (set by GKE)
  MEGASCALE_NUM_SLICES           slices of the job (label of JobSet)
  MEGASCALE_SLICE_ID             this slice's place among them (label of JobSet)
  MEGASCALE_COORDINATOR_ADDRESS  first host of the first slice (label of JobSet)
  JAX_COMPILATION_CACHE_DIR      folder that keeps compiled programs between starts (optional)

The exit code says why it ended: see ExitCode in workloads/spec/pod.py.
"""


def main() -> None:
    """Train, then end the process with the exit code of what happened."""
    began = time.time()
    if sys.argv[1:2] == ["report"]:
        from workloads.report.command import main as report

        sys.exit(report(sys.argv[2:]))
    argparse.ArgumentParser(
        prog="python -m workloads.training",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args()
    try:
        spec, run_id, attempt = submission(os.environ)
    except InvalidSpec as fault:
        # Without a specification there is no storage to write to and nobody to tell.
        print(f"stopped: {fault}", file=sys.stderr)
        sys.exit(fault.code)
    # JAX is imported late so that --help and a faulty specification answer at once.
    from workloads.training.host import run_host
    from workloads.training.start import Start

    image, price = os.environ.get(IMAGE_VARIABLE), usd_per_hour(os.environ)
    start = Start(run_id, attempt, began, image, spec.slices.count, price)
    run_host(spec, start, os.environ)


def submission(environment: Mapping[str, str]) -> tuple[JobSpec, str, int]:
    """The job, the name of this submission of it, and its restarts so far."""
    try:
        spec = JobSpec.model_validate_json(environment[JOB_SPEC_VARIABLE])
        return spec, environment[RUN_ID_VARIABLE], int(environment[START_VARIABLE])
    except KeyError as missing:
        raise InvalidSpec(f"{missing.args[0]} must be set; see python -m workloads.training --help") from None
    except (ValidationError, ValueError) as fault:
        raise InvalidSpec(f"the job specification does not hold: {fault}") from None


def usd_per_hour(environment: Mapping[str, str]) -> float | None:
    """The job's price; None where there is none that can be read, for no job ends over that."""
    try:
        price = float(environment.get(PRICE_VARIABLE, ""))
    except ValueError:
        return None
    return price if math.isfinite(price) and price >= 0 else None


if __name__ == "__main__":
    main()
