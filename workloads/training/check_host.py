"""One host's part in checking the devices before anything else runs on them.

`python -m workloads.training.check_host` does nothing else, for jobs whose program is not the trainer. There are no
arguments; the environment holds the slices as JSON, the job's folder, and what `python -m workloads.training` is told.
Exit status 0: all devices of the job are right. Any other is an `ExitCode`.
"""

import os
import sys
import time
from collections.abc import Mapping

from etils import epath

from workloads.spec import JOB_FOLDER_VARIABLE, RUN_ID_VARIABLE, SLICES_VARIABLE, START_VARIABLE, ExitCode, SliceSpec
from workloads.training import slice_check
from workloads.training.failures import BadHost
from workloads.training.joining import HostProcess, hang
from workloads.training.quarantine import OwnNode, set_aside
from workloads.training.runtime import Place, Processes
from workloads.training.start import Start
from workloads.training.start_check import open_devices, require_devices
from workloads.training.watchdog import Watchdog

_START_MINUTES = 30.0
"""How long a host waits for the others: as long as the trainer does by default."""


def check_devices(
    slices: SliceSpec,
    place: Place,
    processes: Processes,
    environment: Mapping[str, str],
    size: Mapping[str, int] | None,
) -> None:
    """Open all devices, count them and, unless `size` is None, check what they compute on matrices of that size.

    Raises:
        InvalidSpec, NoDevices, OutOfMemory: this cannot be the job's hosts.
        BadHost: hosts are bad. This host's part in setting them aside is done.
    """
    processes.deadline.expect("the slice check", slice_check.MINUTES)
    try:
        devices = open_devices(place)
        require_devices(slices, devices, place, processes)
        if size is not None:
            slice_check.check_slices(slices, devices, place, processes, size)
    except BadHost as bad:
        raise set_aside(bad, OwnNode.of(environment), place, processes) from None


def run_check(slices: SliceSpec, storage: epath.Path, start: Start, environment: Mapping[str, str]) -> None:
    """Check the devices, or end the process with the exit code of what is wrong."""
    with HostProcess(storage, start, environment) as host:
        processes = host.join(slices, _START_MINUTES)
        with Watchdog(processes, host.ending, hang):
            check_devices(slices, host.place, processes, environment, slice_check.SIZE)
    print(f"host {host.place.host}: all devices of the job compute rightly", flush=True)


def main() -> None:
    """Check, then end the process."""
    began = time.time()
    try:
        slices = SliceSpec.model_validate_json(os.environ[SLICES_VARIABLE])
        run_id, attempt = os.environ[RUN_ID_VARIABLE], int(os.environ[START_VARIABLE])
        storage = epath.Path(os.environ[JOB_FOLDER_VARIABLE])
    except (KeyError, ValueError) as fault:
        print(f"stopped: the slice check is not told what to check: {fault}", file=sys.stderr)
        sys.exit(ExitCode.INVALID_SPEC)
    run_check(slices, storage, Start(run_id, attempt, began, None, slices.count, None), os.environ)


if __name__ == "__main__":
    main()
