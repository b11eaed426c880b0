"""Implements `python -m workloads.call`, one host's process of a call.

This module reads the call's environment variables; the work is in `host`.
"""

import argparse
import os
import sys
import time
from collections.abc import Mapping

from pydantic import ValidationError

from multislice_run.sigterm import end_on_sigterm
from workloads.spec import CALL_KEY_VARIABLE, CALL_SPEC_VARIABLE, RUN_ID_VARIABLE, START_VARIABLE, CallSpec, ExitCode

DESCRIPTION = f"""\
Run one host process of a call of a function. There are no arguments; environment variables set everything:

  {CALL_SPEC_VARIABLE:<20} the call's specification as JSON (workloads/spec/job.py)
  {CALL_KEY_VARIABLE:<20} the private key that seals the results, hexadecimal; hidden from the function
  {RUN_ID_VARIABLE:<20} name of this submission of the call
  {START_VARIABLE:<20} number of restarts before this attempt

and GKE's variables, as for python -m workloads.training. For the exit codes, see
multislice_run/exit_codes.py.
"""


def main() -> None:
    """Run the call, then end the process with the exit code of the result."""
    began = time.time()
    argparse.ArgumentParser(
        prog="python -m workloads.call", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    end_on_sigterm()
    try:
        spec, private_key, run_id, attempt = submission(os.environ)
    except (KeyError, ValueError) as fault:
        print(f"stopped: {fault}", file=sys.stderr)
        sys.exit(ExitCode.INVALID_SPEC)
    # Processes that the function starts must not inherit the key.
    del os.environ[CALL_KEY_VARIABLE]
    # JAX is imported late so that --help and the error of an invalid specification appear at once.
    from multislice_run.attempt_facts import AttemptFacts
    from workloads.call.host import run_host

    run_host(spec, private_key, AttemptFacts(run_id, attempt, began, None, spec.slices.count, None), os.environ)


def submission(environment: Mapping[str, str]) -> tuple[CallSpec, str, str, int]:
    """Return the call, its private key, the name of this submission, and the number of restarts so far.

    Raises:
        ValueError: a variable is missing or not valid.
    """
    try:
        spec = CallSpec.model_validate_json(environment[CALL_SPEC_VARIABLE])
        return spec, environment[CALL_KEY_VARIABLE], environment[RUN_ID_VARIABLE], int(environment[START_VARIABLE])
    except KeyError as missing:
        raise ValueError(f"{missing.args[0]} must be set; see python -m workloads.call --help") from None
    except ValidationError as fault:
        raise ValueError(f"the call's specification is not valid: {fault}") from None


if __name__ == "__main__":
    main()
