"""Checks before training begins that all hosts are present with the right devices.

Every host signs the roll `starts/<run id>/<start>/` below the storage path before it joins. The roll is in storage
because the error of JAX's join does not name the missing hosts. Its entries need no signature, because only the job's
account can write there. Therefore the first process also leaves the key of the attempt, a secret that all of its hosts
can read and that never travels through JAX, whose coordination service answers everybody. `links` uses it.
`slice_check` tests the devices' computation.
"""

import secrets
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import jax
from etils import epath

from workloads.spec import JobSpec, SliceSpec
from workloads.training.failures import BadHost, InvalidSpec, NoDevices, Suspect
from workloads.training.runtime import Place, Processes


def on_present_slices(job: JobSpec, place: Place) -> JobSpec:
    """Return the job as it runs on the slices of its JobSet, before this process waits for others.

    Raises:
        InvalidSpec: the slices do not match the job.
    """
    require_place(job.slices, place)
    return job if place.slice_count == job.slices.count else job.on_slices(place.slice_count)


def require_place(slices: SliceSpec, place: Place) -> None:
    """Compare the slices of the JobSet with those of the specification.

    Raises:
        InvalidSpec: too many or too few slices, another number of hosts, or a place outside of them.
    """
    fewest = slices.fewest
    faults: list[str] = []
    if not fewest <= place.slice_count <= slices.count:
        expected = slices.count if fewest == slices.count else f"{fewest} to {slices.count}"
        faults.append(f"expected {expected} slices (MEGASCALE_NUM_SLICES), got {place.slice_count}")
    if len(place.hosts) != slices.hosts:
        variables = "TPU_WORKER_HOSTNAMES or TPU_PROCESS_ADDRESSES"
        faults.append(f"expected {slices.hosts} hosts per slice ({variables}), got {len(place.hosts)}")
    if place.slice not in range(place.slice_count):
        faults.append(f"expected a MEGASCALE_SLICE_ID below {place.slice_count}, got {place.slice}")
    if faults:
        raise InvalidSpec(
            f"host {place.host}: {'; '.join(faults)}; submit the job again with a specification for"
            f" {slices.count} slices of {slices.topology}"
        )


CACHED_FROM_SECONDS = {"cpu": 0.0, "tpu": 1.0}
"""Compilation time in seconds from which JAX's compilation cache keeps a program, by platform. The cache for chips is
in a bucket, where each small program would cost every host a round trip."""


def open_devices(place: Place) -> Sequence[Any]:
    """Return all devices of the job, and print those of this host.

    Raises:
        NoDevices: those of this host do not open, or those of another host never appear.
    """
    try:
        devices = jax.devices()
        print(own_devices(place, jax.local_devices()), flush=True)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", CACHED_FROM_SECONDS[devices[0].platform])
        return devices
    except RuntimeError as error:
        raise NoDevices(
            f"host {place.host}: its devices do not open ({str(error).splitlines()[0]}); if other hosts report it too,"
            " check the image, its libtpu and its permissions on the devices"
        ) from error


def own_devices(place: Place, local: Sequence[Any]) -> str:
    """Return a line with the devices of this host and their positions in the slice."""
    return f"host {place.host} has in slice {place.slice}: {', '.join(map(_device, local))}"


def _device(device: Any) -> str:
    if device.platform != "tpu":
        return f"device {device.id}"
    coordinates = ",".join(map(str, device.coords))
    return f"device {device.id} at ({coordinates}) core {device.core_on_chip}"


def require_devices(slices: SliceSpec, devices: Sequence[Any], place: Place, processes: Processes) -> None:
    """Compare the devices of all hosts with the specification. The result is the same in every process.

    Raises:
        BadHost: a host has too few devices.
        InvalidSpec: a host has too many, or devices are not in the slice that GKE reports.
    """
    local = [device for device in devices if device.process_index == processes.index]
    seen = _reported_slices(local, place)
    own: dict[str, Any] = {"host": place.host, "devices": len(local), "slice": place.slice, "seen": seen}
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


def _reported_slices(local: Sequence[Any], place: Place) -> list[int]:
    """Return the slices that the devices report. CPU devices and those of a single slice report nothing useful."""
    if place.slice_count == 1 or not local or local[0].platform != "tpu":
        return [place.slice]
    return sorted({device.slice_index for device in local})


def _list_hosts(hosts: Sequence[dict[str, Any]]) -> str:
    return ", ".join(f"host {host['host']} has {host['devices']} devices" for host in hosts)


_KEY_BYTES = 32


class Roll:
    """Records which hosts began this attempt, and keeps its key."""

    def __init__(self, storage: epath.Path, run_id: str, start: int):
        self._folder = storage / "starts" / run_id / str(start)
        self._key = self._folder / "key"
        self._start = start

    def sign(self, place: Place) -> None:
        """Record that this host began. The first one of all also makes the key."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if place.process == 0:
            self._key.write_text(secrets.token_hex(_KEY_BYTES))
        (self._folder / str(place.process)).write_text(place.host)

    def key(self) -> bytes:
        """Return the key of this attempt, which exists once all hosts have joined.

        Raises:
            ValueError: the file has other content.
        """
        key = bytes.fromhex(self._key.read_text())
        if len(key) != _KEY_BYTES:
            raise ValueError(f"{self._key}: expected {_KEY_BYTES} bytes, got {len(key)}")
        return key

    def missing(self, slices: SliceSpec) -> str:
        """Describe the hosts of `slices` that did not sign, or if all did, another possible cause."""
        signed = {path.name for path in self._folder.iterdir()}
        count = slices.total_hosts
        absent = [process for process in range(count) if str(process) not in signed]
        if not absent:
            return (
                f"all {count} hosts began but did not join; is the first host of the first slice reachable from here?"
            )
        names = [f"slice {index // slices.hosts} host {index % slices.hosts}" for index in absent]
        return f"{count - len(absent)} of {count} hosts began, missing: {', '.join(names)}"

    def forget(self) -> None:
        """Remove this roll and earlier ones of the submission in the background, after all hosts have joined.

        This roll is removed too, because a job that is evicted and continues begins again under the same number. Its
        key stays, because hosts still read it.
        """
        threading.Thread(target=self._remove, name="rolls", daemon=True).start()

    def _remove(self) -> None:
        # Remaining files are harmless, and the next attempt tries again.
        with suppress(Exception):
            for folder in self._folder.parent.iterdir():
                if folder.name.isdecimal() and int(folder.name) < self._start:
                    folder.rmtree()
            for path in self._folder.iterdir():
                if path != self._key:
                    path.unlink()
