"""Checks the devices on one host before anything else runs on them.

`python -m workloads.training.check_host` does only this, for jobs whose program is not the trainer. It has no
arguments. The environment has the slices as JSON, the job's folder, and the variables of
`python -m workloads.training`. Exit code 0 means that all devices of the job are right. Others are in `ExitCode`.
"""

import os
import sys
import time
from collections.abc import Mapping

from etils import epath

from multislice_run.attempt_facts import AttemptFacts
from multislice_run.sigterm import end_on_sigterm
from workloads.spec import JOB_FOLDER_VARIABLE, RUN_ID_VARIABLE, SLICES_VARIABLE, START_VARIABLE, ExitCode, SliceSpec
from workloads.training import slice_check
from workloads.training.failures import BadHost
from workloads.training.joining import HostProcess, hang
from workloads.training.quarantine import OwnNode, set_aside
from workloads.training.runtime import HostPosition, Processes
from workloads.training.start_check import open_devices, require_devices
from workloads.training.watchdog import Watchdog

_START_MINUTES = 30.0
"""Time in minutes that a host waits for the others, the same as the trainer's default."""


def check_devices(
    slices: SliceSpec,
    position: HostPosition,
    processes: Processes,
    environment: Mapping[str, str],
    size: Mapping[str, int] | None,
) -> None:
    """Open and count all devices and, unless `size` is None, check their computation with matrices of that size.

    Raises:
        InvalidSpec, NoDevices, OutOfMemory: these hosts cannot run the job.
        BadHost: hosts are bad. This host has already marked its node if needed.
    """
    processes.deadline.expect("the slice check", slice_check.MINUTES)
    try:
        devices = open_devices(position)
        require_devices(slices, devices, position, processes)
        if size is not None:
            slice_check.check_slices(slices, devices, position, processes, size)
    except BadHost as bad:
        raise set_aside(bad, OwnNode.of(environment), position, processes) from None


def main() -> None:
    """Check the devices. On an error, end the process with its exit code."""
    began = time.time()
    end_on_sigterm()
    try:
        slices = SliceSpec.model_validate_json(os.environ[SLICES_VARIABLE])
        run_id, attempt = os.environ[RUN_ID_VARIABLE], int(os.environ[START_VARIABLE])
        storage = epath.Path(os.environ[JOB_FOLDER_VARIABLE])
    except (KeyError, ValueError) as fault:
        print(f"stopped: the environment of the slice check is not valid: {fault}", file=sys.stderr)
        sys.exit(ExitCode.INVALID_SPEC)
    with HostProcess(storage, AttemptFacts(run_id, attempt, began, None, slices.count, None), os.environ) as host:
        processes = host.join(slices, _START_MINUTES)
        # JAX has replaced the handler.
        end_on_sigterm()
        with Watchdog(processes, host.ending, hang):
            check_devices(slices, host.position, processes, os.environ, slice_check.SIZE)
    print(f"host {host.position.host}: all devices of the job compute correctly", flush=True)


if __name__ == "__main__":
    main()
