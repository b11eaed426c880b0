"""Implements `python -m workloads.training`, one host's process of a training job.

This module reads the job's environment variables; the work is in `host`.
"""

import argparse
import os
import sys
import time
from collections.abc import Mapping
from importlib import import_module

from pydantic import ValidationError

from multislice_run.attempt_facts import AttemptFacts
from multislice_run.sigterm import end_on_sigterm
from multislice_run.supervised import is_supervised, wait_for_start
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
Run one host process of a training job, or with `report DIR`, write a report of a job's run as an HTML file.
Training has no arguments; environment variables set everything:

  {JOB_SPEC_VARIABLE:<30} the job specification as JSON (workloads/spec/job.py)
  {RUN_ID_VARIABLE:<30} name of this submission of the job
  {START_VARIABLE:<30} number of restarts before this attempt
  {IMAGE_VARIABLE:<30} container image with its digest, for the record (optional)
  {PRICE_VARIABLE:<30} price of all slices of the job in USD per hour, for the record (optional)
  TPU_WORKER_HOSTNAMES           hosts of this slice, comma separated, in worker order (set by GKE)
  TPU_WORKER_ID                  index of this host among them (set by GKE)
  MEGASCALE_NUM_SLICES           number of slices of the job (label of JobSet)
  MEGASCALE_SLICE_ID             index of this slice (label of JobSet)
  MEGASCALE_COORDINATOR_ADDRESS  first host of the first slice (label of JobSet)
  JAX_COMPILATION_CACHE_DIR      folder that keeps compiled programs between attempts (optional)

For the exit codes, see multislice_run/exit_codes.py.
"""


def main() -> None:
    """Train, then end the process with the exit code of the result."""
    began = time.time()
    if sys.argv[1:2] == ["report"]:
        from workloads.report.command import main as report

        sys.exit(report(sys.argv[2:]))
    argparse.ArgumentParser(
        prog="python -m workloads.training",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args()
    # Until the hosts have joined. Imports take seconds.
    end_on_sigterm()
    if is_supervised():
        # Everything that needs no devices is done before the attempt begins.
        import_module(f"{__package__}.host")
        began = wait_for_start(os.environ)
    try:
        spec, start = submission(os.environ, began)
    except InvalidSpec as fault:
        # Without a specification, there is neither storage to write to nor another host to inform.
        print(f"stopped: {fault}", file=sys.stderr)
        sys.exit(fault.code)
    # JAX is imported late so that --help and the error of an invalid specification appear at once.
    from workloads.training.host import run_host

    run_host(spec, start, os.environ)


def submission(environment: Mapping[str, str], began: float) -> tuple[JobSpec, AttemptFacts]:
    """Return the job and this start of it. `began` is the Unix time at which the process began."""
    try:
        spec = JobSpec.model_validate_json(environment[JOB_SPEC_VARIABLE])
        return spec, AttemptFacts.of(environment, began, spec.slices.count)
    except KeyError as missing:
        raise InvalidSpec(f"{missing.args[0]} must be set; see python -m workloads.training --help") from None
    except (ValidationError, ValueError) as fault:
        raise InvalidSpec(f"the job specification is not valid: {fault}") from None


if __name__ == "__main__":
    main()
