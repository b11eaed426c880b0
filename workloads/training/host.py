"""One host's process around the training: check the place, join, watch, train, end.

Owns the order of these and which failure counts. Each of them is elsewhere.
"""

import logging
from collections.abc import Mapping

from etils import epath

from workloads.spec import JobSpec
from workloads.training import slice_check
from workloads.training.check_host import check_devices
from workloads.training.ending import Ending, Failure
from workloads.training.exporter import look_back, serve
from workloads.training.failures import TrainingStopped
from workloads.training.joining import end, hang, joined
from workloads.training.live_metrics import LiveMetrics
from workloads.training.loop import train
from workloads.training.runtime import Place, Processes, require_coordinator_port
from workloads.training.start import Start
from workloads.training.start_check import Roll, on_present_slices
from workloads.training.watchdog import Watchdog
from workloads.training.writer import Writer


def run_host(spec: JobSpec, start: Start, environment: Mapping[str, str]) -> None:
    """Train to the end of the run, or end the process with the exit code of what happened."""
    # gcsfs warns at every call that it found no default credentials; what it cannot do, it raises.
    logging.getLogger("gcsfs").setLevel(logging.ERROR)
    place = Place.of(environment)
    storage = epath.Path(spec.storage.path)
    ending = Ending(storage, start, place.host)
    live = LiveMetrics(start, leads=place.process == 0)
    serve(live, environment)
    look_back(live, storage, start)
    # Until it has joined, a process has nobody to tell.
    processes = Processes(0, 1, place.host)

    def lost(error: TrainingStopped) -> None:
        ending.fail(Failure.of(error, place.host), processes)

    try:
        job = on_present_slices(spec, place)
        require_coordinator_port(place, environment)
        roll = Roll(storage, start.run_id, start.restart_attempt, job.slices)
        processes = joined(place, job.training.start_minutes, roll, ending)
        with Watchdog(processes, ending, hang):
            check_devices(job.slices, place, processes, environment, slice_check.SIZE)
            with Writer(storage, start.run_id, start.restart_attempt, processes, lost):
                train(job, start, processes, live)
    except BaseException as error:  # noqa: BLE001 - whatever it was, the process must end now
        end(error, processes, ending)
