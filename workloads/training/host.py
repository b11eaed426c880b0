"""Runs one host's process of a training job: check the position, join, watch, train, end.

Each host keeps its compiled programs for the next attempt in the same pods, which runs the same programs. JAX stores
them on the first host only, because it expects one folder for all hosts. By default, each host has its own in its pod,
and all others would compile again while the first one waits for them.
"""

import socket
import warnings
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import Any

import jax
from etils import epath
from jax._src import compilation_cache, compiler

from multislice_run.attempt_facts import AttemptFacts
from multislice_run.ending import Failure
from multislice_run.live_metrics import LiveMetrics, look_back, serve
from workloads.spec import JobSpec
from workloads.training import slice_check
from workloads.training.check_host import check_devices
from workloads.training.failures import TrainingStopped
from workloads.training.joining import HostProcess, hang, on_present_slices
from workloads.training.lifelines import Lifelines
from workloads.training.loop import train
from workloads.training.runtime import HostPosition
from workloads.training.trackers import require_packages
from workloads.training.watchdog import Watchdog
from workloads.training.writer import Writer


def run_host(spec: JobSpec, start: AttemptFacts, environment: Mapping[str, str]) -> None:
    """Train to the end of the run. On an error, end the process with its exit code."""
    storage = epath.Path(spec.storage.path)
    host = HostProcess(storage, start, environment)
    position = host.position

    def lost(error: TrainingStopped) -> None:
        host.ending.fail(Failure.of(error, position.host), host.processes)

    live = LiveMetrics(start, leads=position.process == 0)
    serve(live, environment)
    look_back(live, storage, start)
    store_on_each_host()
    with host:
        require_packages(spec.trackers)
        job = on_present_slices(spec, position)
        processes = host.join(job.slices, job.training.start_minutes)
        lifelines = Lifelines(processes, host.roll.key, lambda: own_address(position, environment), host.lose)
        with Watchdog(processes, host.ending, hang, host.leave_early), lifelines:
            check_devices(job.slices, position, processes, environment, slice_check.SIZE)
            with Writer(storage, start.run_id, start.restart_attempt, processes, lost):
                train(job, start, processes, live)


def own_address(position: HostPosition, environment: Mapping[str, str]) -> str:
    """Return the IP address of this host for other slices."""
    bound = environment.get("JAX_COORDINATOR_BIND_ADDRESS", "").rpartition(":")[0].strip("[]")
    # It may be a name, or stand for all addresses of the host.
    with suppress(ValueError):
        if not ip_address(bound).is_unspecified:
            return bound
    return socket.gethostbyname(position.host if len(position.hosts) > 1 else socket.gethostname())


def store_on_each_host() -> None:
    """Let JAX store compiled programs also on the hosts after the first, unless their folder is in a bucket."""
    folder = jax.config.jax_compilation_cache_dir
    if folder and "://" not in folder:
        compiler._cache_write = _store  # pyright: ignore[reportPrivateUsage]


def _store(key: str, seconds: float, name: str, backend: Any, executable: Any) -> None:
    """Store a program that took these seconds to compile, as JAX's function of this name does on the first host."""
    if seconds < jax.config.jax_persistent_cache_min_compile_time_secs:
        return
    try:
        compilation_cache.put_executable_and_time(key, name, executable, backend, int(seconds))
    except Exception as error:  # noqa: BLE001 - whatever is wrong, such as a full disk, it costs only time
        warnings.warn(f"the compiled program {name} is not kept for the next attempt: {error}", stacklevel=2)
