"""`python -m workloads.training`: one host's process of a training job.

Owns the reading of the environment and the exit code.
"""

import argparse
import logging
import os
import sys
import time
import traceback
from collections.abc import Mapping

from pydantic import ValidationError

from workloads.spec import IMAGE_VARIABLE, JOB_SPEC_VARIABLE, RUN_ID_VARIABLE, START_VARIABLE, JobSpec

DESCRIPTION = f"""\
Train one job as one of its host processes. There are no arguments; the environment says all:

  {JOB_SPEC_VARIABLE:<30} the job specification as JSON (workloads/spec.py)
  {RUN_ID_VARIABLE:<30} name of this submission of the job
  {START_VARIABLE:<30} restarts of it before this start
  {IMAGE_VARIABLE:<30} container image with its digest, for the record (optional)
  TPU_WORKER_HOSTNAMES           hosts of this slice, comma separated, in worker order (set by GKE)
  TPU_WORKER_ID                  this host's place among them (set by GKE)
  MEGASCALE_NUM_SLICES           slices of the job (set by GKE)
  MEGASCALE_SLICE_ID             this slice's place among them (set by GKE)
  MEGASCALE_COORDINATOR_ADDRESS  first host of the first slice (set by GKE)
  JAX_COMPILATION_CACHE_DIR      folder that keeps compiled programs between starts (optional)

The exit code says why it ended: see ExitCode in workloads/spec.py.
"""


def main() -> None:
    """Train, then end the process with the exit code of what happened."""
    began = time.time()
    argparse.ArgumentParser(
        prog="python -m workloads.training",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args()
    try:
        _train(os.environ, began)
    except BaseException as error:  # noqa: BLE001 - whatever it was, the process must end now
        # A normal exit would wait at JAX's shutdown barrier for hosts that wait in a collective for this one.
        _exit_for(error)


def _train(environment: Mapping[str, str], began: float) -> None:
    # gcsfs warns at every call that it found no default credentials; what it cannot do, it raises.
    logging.getLogger("gcsfs").setLevel(logging.ERROR)
    # JAX is imported late so that --help and a faulty specification answer at once.
    from workloads.training.failures import InvalidSpec, TrainingStopped

    try:
        spec = JobSpec.model_validate_json(environment[JOB_SPEC_VARIABLE])
        run_id, attempt = environment[RUN_ID_VARIABLE], int(environment[START_VARIABLE])
    except KeyError as missing:
        raise InvalidSpec(f"{missing.args[0]} must be set; see python -m workloads.training --help") from None
    except (ValidationError, ValueError) as fault:
        raise InvalidSpec(f"the job specification does not hold: {fault}") from None
    from workloads.training.loop import Start, train
    from workloads.training.runtime import join

    processes = join(environment)
    try:
        train(spec, Start(run_id, attempt, began, environment.get(IMAGE_VARIABLE)), processes)
    except TrainingStopped:
        processes.leave_together()
        raise


def _exit_for(error: BaseException) -> None:
    from workloads.training.failures import TrainingStopped, exit_code

    if isinstance(error, TrainingStopped):
        print(f"stopped: {error}", file=sys.stderr)
    else:
        traceback.print_exception(error)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code(error))


if __name__ == "__main__":
    main()
