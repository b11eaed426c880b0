"""Runs one host's process of a training job: check the place, join, watch, train, end."""

from collections.abc import Mapping

from etils import epath

from multislice_run.ending import Failure
from multislice_run.live_metrics import LiveMetrics, look_back, serve
from multislice_run.start import Start
from workloads.spec import JobSpec
from workloads.training import slice_check
from workloads.training.check_host import check_devices
from workloads.training.failures import TrainingStopped
from workloads.training.joining import HostProcess, hang
from workloads.training.loop import train
from workloads.training.start_check import on_present_slices
from workloads.training.trackers import require_packages
from workloads.training.watchdog import Watchdog
from workloads.training.writer import Writer


def run_host(spec: JobSpec, start: Start, environment: Mapping[str, str]) -> None:
    """Train to the end of the run. On an error, end the process with its exit code."""
    storage = epath.Path(spec.storage.path)
    host = HostProcess(storage, start, environment)
    place = host.place

    def lost(error: TrainingStopped) -> None:
        host.ending.fail(Failure.of(error, place.host), host.processes)

    live = LiveMetrics(start, leads=place.process == 0)
    serve(live, environment)
    look_back(live, storage, start)
    with host:
        require_packages(spec.trackers)
        job = on_present_slices(spec, place)
        processes = host.join(job.slices, job.training.start_minutes)
        with Watchdog(processes, host.ending, hang):
            check_devices(job.slices, place, processes, environment, slice_check.SIZE)
            with Writer(storage, start.run_id, start.restart_attempt, processes, lost):
                train(job, start, processes, live)
