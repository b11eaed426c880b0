"""Joins a host process with the others, and ends it with them when it fails.

This includes the checks before the join, the roll and the watchdog around it, and the choice of whose failure counts.
It imports no models or checkpoints.
"""

from collections.abc import Mapping
from typing import Self

from etils import epath

from multislice_run.attempt_facts import AttemptFacts
from multislice_run.ending import Ending, Failure
from multislice_run.sigterm import NOTHING_TO_SAVE
from multislice_run.supervised import is_supervised
from multislice_run.worlds import Ready, Roll
from workloads.spec import ExitCode, JobSpec, SliceSpec
from workloads.training.failures import InvalidSpec, Preempted, TrainingStopped
from workloads.training.runtime import Deadline, Expectation, HostPosition, Processes, join, require_coordinator_port
from workloads.training.watchdog import Watchdog

_UNREACHABLE = "all hosts began but did not join; is the first host of the first slice reachable from here?"


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


class HostProcess:
    """This process as one host of a job. The context manager ends the process for every exception raised inside."""

    def __init__(self, storage: epath.Path, start: AttemptFacts, environment: Mapping[str, str]):
        """`storage` is the folder of the roll and of failures."""
        self.position = HostPosition.of(environment)
        self.ending = Ending(storage, start, self.position.host)
        self.processes = Processes(0, 1, self.position.host)
        """Processes to inform about a failure. Before the join, only this one."""
        self.storage = storage
        self.roll = Roll(storage, start.run_id, start.restart_attempt)
        self._environment = environment

    def join(self, slices: SliceSpec, start_minutes: float) -> Processes:
        """Join the other hosts of `slices`, which may start up to `start_minutes` later than this one.

        If they do not, this process ends.

        Raises:
            InvalidSpec: the JobSet has other slices.
            BadHostStays: something else listens on the coordinator's port.
        """
        require_position(slices, self.position)
        require_coordinator_port(self.position, self._environment)
        deadline = Deadline()
        deadline.expect("the join of all hosts", start_minutes)

        def explain(missed: Expectation) -> str:
            try:
                missing = "" if is_supervised() else self.roll.missing(self.position.slice_count, slices.hosts)
                return f"{hang(missed)}: {missing or _UNREACHABLE}"
            except Exception as error:  # noqa: BLE001 - storage may be what fails, but the process must end anyway
                return f"{hang(missed)}, and the roll in storage cannot be read: {error}"

        with Watchdog(Processes(0, 1, self.position.host, deadline), self.ending, explain):
            # A supervisor has signed, and has seen all others sign, before it began this attempt.
            signs = not self.position.alone and not is_supervised()
            if signs:
                self.roll.sign(self.position.process, Ready(self.position.host))
            self.processes = join(self.position, start_minutes, deadline)
        if signs and self.processes.leads:
            self.roll.forget()
        return self.processes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """End this process for `error`, or for the failure of another host that caused it."""
        if error is None:
            return
        processes = self.processes
        failure = Failure.of(error, processes.host)
        if isinstance(error, TrainingStopped) and error.agreed and processes.leave_together():
            self.ending.fail(failure, others=Processes(0, 1, processes.host))
        self._end(failure)

    def lose(self, host: str, index: int) -> None:
        """End this process because it has lost the host with this name and index."""
        failure = Failure.of_lost_host(host, self.processes.host)
        if index == 0:
            # The others cannot be told without the leader.
            self.ending.fail(failure)
        self._end(failure)

    def leave_early(self) -> None:
        """End this process if the job got SIGTERM before this process has anything new to save."""
        if self.processes.is_preempted_early():
            self._end(Failure.of(Preempted(NOTHING_TO_SAVE), self.processes.host))

    def _end(self, failure: Failure) -> None:
        # Errors of other hosts that the exit of one host causes, as in a collective, are not their own failures.
        other = self.processes.read_failure()
        if other and other["code"] != ExitCode.PEER_LOST:
            failure = Failure.from_other_host(other, "", self.processes.host)
        self.ending.fail(failure, self.processes)


def hang(missed: Expectation) -> str:
    """Describe what did not end in time."""
    return f"{missed.what} did not end within {missed.minutes:g} minutes"
