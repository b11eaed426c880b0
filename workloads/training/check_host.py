"""Checks the devices on one host before anything else runs on them: that all are there, and compute rightly.

`python -m workloads.training.check_host` does only this, for jobs whose program is not the trainer. It has no
arguments. The environment has the slices as JSON, the job's folder, and the variables of
`python -m workloads.training`. Exit code 0 means that all devices of the job are right. Others are in `ExitCode`.
"""

import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from etils import epath

from multislice_run.attempt_facts import AttemptFacts
from multislice_run.sigterm import end_on_sigterm
from workloads.spec import JOB_FOLDER_VARIABLE, RUN_ID_VARIABLE, SLICES_VARIABLE, START_VARIABLE, ExitCode, SliceSpec
from workloads.training import slice_check
from workloads.training.failures import BadHost, InvalidSpec, NoDevices, Suspect
from workloads.training.joining import HostProcess, hang
from workloads.training.quarantine import OwnNode, set_aside
from workloads.training.runtime import HostPosition, Processes
from workloads.training.watchdog import Watchdog

_START_MINUTES = 30.0
"""Time in minutes that a host waits for the others, the same as the trainer's default."""

CACHED_FROM_SECONDS = {"cpu": 0.0, "tpu": 1.0}
"""Compilation time in seconds from which JAX's compilation cache keeps a program, by platform. The cache for chips is
in a bucket, where each small program would cost every host a round trip."""


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


def open_devices(position: HostPosition) -> Sequence[Any]:
    """Return all devices of the job, and print those of this host.

    Raises:
        NoDevices: those of this host do not open, or those of another host never appear.
    """
    try:
        devices = jax.devices()
        print(own_devices(position, jax.local_devices()), flush=True)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", CACHED_FROM_SECONDS[devices[0].platform])
        return devices
    except RuntimeError as error:
        raise NoDevices(
            f"host {position.host}: its devices do not open ({str(error).splitlines()[0]}); if other hosts report it"
            " too, check the image, its libtpu and its permissions on the devices"
        ) from error


def own_devices(position: HostPosition, local: Sequence[Any]) -> str:
    """Return a line with the devices of this host and their positions in the slice."""
    return f"host {position.host} has in slice {position.slice}: {', '.join(map(_device, local))}"


def _device(device: Any) -> str:
    if device.platform != "tpu":
        return f"device {device.id}"
    coordinates = ",".join(map(str, device.coords))
    return f"device {device.id} at ({coordinates}) core {device.core_on_chip}"


def require_devices(slices: SliceSpec, devices: Sequence[Any], position: HostPosition, processes: Processes) -> None:
    """Compare the devices of all hosts with the specification. The result is the same in every process.

    Raises:
        BadHost: a host has too few devices.
        InvalidSpec: a host has too many, or devices are not in the slice that GKE reports.
    """
    local = [device for device in devices if device.process_index == processes.index]
    seen = _reported_slices(local, position)
    own: dict[str, Any] = {"host": position.host, "devices": len(local), "slice": position.slice, "seen": seen}
    hosts = processes.gather("devices", own)
    expected = slices.devices_per_host
    if few := [host for host in hosts if host["devices"] < expected]:
        suspects = {Suspect(host["slice"], host["host"]) for host in few}
        raise BadHost(f"{_list_hosts(few)}: expected {expected} devices per host", suspects)
    if many := [host for host in hosts if host["devices"] > expected]:
        raise InvalidSpec(
            f"{_list_hosts(many)}: expected {expected} devices per host; submit the job for these machines"
        )
    if elsewhere := [host for host in hosts if host["seen"] != [host["slice"]]]:
        words = [
            f"host {host['host']} is in slice {host['slice']}, its devices in {host['seen']}" for host in elsewhere
        ]
        raise InvalidSpec(f"{'; '.join(words)}; GKE's variables and the chips must name the same slices")
    sizes = Counter(host["slice"] for host in hosts)
    if sizes != dict.fromkeys(range(slices.count), slices.hosts):
        raise InvalidSpec(f"expected {slices.hosts} hosts in each of {slices.count} slices, got {dict(sizes)}")


def _reported_slices(local: Sequence[Any], position: HostPosition) -> list[int]:
    """Return the slices that the devices report. CPU devices and those of a single slice report nothing useful."""
    if position.slice_count == 1 or not local or local[0].platform != "tpu":
        return [position.slice]
    return sorted({device.slice_index for device in local})


def _list_hosts(hosts: Sequence[dict[str, Any]]) -> str:
    return ", ".join(f"host {host['host']} has {host['devices']} devices" for host in hosts)


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
