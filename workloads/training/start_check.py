"""Checks before training begins that all hosts are present with the right devices.

`slice_check` tests the devices' computation.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax

from workloads.spec import JobSpec, SliceSpec
from workloads.training.failures import BadHost, InvalidSpec, NoDevices, Suspect
from workloads.training.runtime import HostPosition, Processes


def on_present_slices(job: JobSpec, position: HostPosition) -> JobSpec:
    """Return the job as it runs on the slices of its JobSet, before this process waits for others.

    Raises:
        InvalidSpec: the slices do not match the job.
    """
    require_position(job.slices, position)
    return job if position.slice_count == job.slices.count else job.on_slices(position.slice_count)


def require_position(slices: SliceSpec, position: HostPosition) -> None:
    """Compare the slices of the JobSet with those of the specification.

    Raises:
        InvalidSpec: too many or too few slices, another number of hosts, or a position outside of them.
    """
    if faults := position.faults(slices.fewest, slices.count, slices.hosts):
        raise InvalidSpec(
            f"host {position.host}: {'; '.join(faults)}; submit the job again with a specification for"
            f" {slices.count} slices of {slices.topology}"
        )


CACHED_FROM_SECONDS = {"cpu": 0.0, "tpu": 1.0}
"""Compilation time in seconds from which JAX's compilation cache keeps a program, by platform. The cache for chips is
in a bucket, where each small program would cost every host a round trip."""


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
