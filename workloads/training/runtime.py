"""Connects the processes of a job: joining, exchanging values, and stopping together on SIGTERM.

Only this module uses `jax.distributed` and JAX's private parts for it.
"""

import errno
import itertools
import json
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import jax
from jax._src.clusters.cloud_tpu_cluster import coordinator_port
from jax._src.distributed import global_state
from jax.experimental import multihost_utils

from multislice_run.pod import HostPosition as HostPosition
from multislice_run.sigterm import LEADER_STAYS_SECONDS, jax_heard_sigterm, on_sigterm
from workloads.spec import ExitCode
from workloads.training.failures import BadHostStays, HostMissing, Suspect


@dataclass(frozen=True)
class Expectation:
    """Something that must be finished."""

    what: str
    minutes: float
    due: float
    """Latest time by `time.monotonic()`."""


class Deadline:
    """The current expectation, set by the working thread and read by the watchdog's."""

    def __init__(self):
        self._expected: Expectation | None = None

    def expect(self, what: str, minutes: float) -> None:
        """Expect `what` to be finished within `minutes`. The previous expectation counts as met."""
        self._expected = Expectation(what, minutes, time.monotonic() + 60 * minutes)

    def clear(self) -> None:
        self._expected = None

    def seconds_left(self) -> float:
        """Return the seconds until the deadline, or 0 after it."""
        expected = self._expected
        assert expected, "everything that waits for other hosts needs a deadline"
        return max(0.0, expected.due - time.monotonic())

    def missed(self) -> Expectation | None:
        """Return the expectation if its deadline has passed."""
        expected = self._expected
        return expected if expected and time.monotonic() > expected.due else None


HEARTBEAT_TIMEOUT_SECONDS = 100
"""Time limit of JAX's heartbeat. A host without a sign of life counts as lost after half of it at the earliest; its
peers then abort and restart. A host that died is noticed earlier (`lifelines`), and so is one that hangs (`watchdog`).
This is JAX's default, because less would end whole jobs for a host that is only busy, as when it compiles. Google's
multislice tests had to raise it (https://github.com/GoogleCloudPlatform/ml-auto-solutions/pull/1166)."""

SHUTDOWN_TIMEOUT_SECONDS = 15
"""Time limit of the barrier at exit. With JAX's default of 300 s, one failed host would delay all others that long."""

LEAVE_TIMEOUT_SECONDS = 15
"""Time that a process which stops for a known cause waits for the others to stop too."""

LEADER_LINGERS_SECONDS = 1.0
"""Time that the leader gives the others to end after the barrier at exit."""

JOIN_MARGIN_SECONDS = 60
"""Time that JAX's limit for joining is above ours. JAX aborts the process without naming the missing hosts, so our
limit, which names them, has to come first."""

FAILURE_KEY = "failure"

FAILURE_IS_HEARD_SECONDS = 4.0
"""Time for the others to notice a failure. Every host checks once a second and needs a moment to end."""


@dataclass(frozen=True)
class Processes:
    """This host's connection to the processes of the job."""

    index: int
    count: int
    host: str
    deadline: Deadline = field(default_factory=Deadline)
    """Deadline of what this process does next."""
    sigterm: threading.Event = field(default_factory=threading.Event)
    """Set on SIGTERM if this is the only process. With several processes, JAX's service records it."""
    trains: threading.Event = field(default_factory=threading.Event)
    """Set when this process first asks `should_stop`. Before that, it has nothing new to save."""
    _asks: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def leads(self) -> bool:
        """Whether this process decides and reports for all."""
        return self.index == 0

    def share[T](self, key: str, decide: Callable[[], T]) -> T:
        """Return the result of `decide`, which only the leader calls, on all processes. Each key may be used once.

        All values that processes exchange are made of what JSON has: a tuple may come back as a list.
        """
        if self.count == 1:
            return decide()
        if self.leads:
            self._client.key_value_set(f"{key}/{self.index}", json.dumps(decide()))
        return self._read(key, 0)

    def gather[T](self, key: str, value: T) -> list[T]:
        """Return every process's `value` by process index. Each key may be used once.

        The leader collects them and shares the list. If each of N processes read N keys, or listed them all, the
        leader would have to answer N squared reads. For thousands of processes, this takes minutes or fails.
        """
        if self.count == 1:
            return [value]
        self._client.key_value_set(f"{key}/{self.index}", json.dumps(value))
        return self.share(f"{key}/all", lambda: [self._read(key, index) for index in range(self.count)])

    def should_stop(self) -> bool:
        """Return whether any process got SIGTERM. Ask before every step. Each time, all processes get the same answer.

        JAX agrees on the number of a query after the last one that any process has made, so the queries of each attempt
        are counted from 1. Its steps may begin at a high number, which nothing would have led up to.
        """
        self.trains.set()
        if self.count == 1:
            return self.sigterm.is_set()
        return multihost_utils.reached_preemption_sync_point(next(self._asks))

    def is_preempted_early(self) -> bool:
        """Return whether any process got SIGTERM while this one has nothing new to save, so that it need not agree."""
        return not self.trains.is_set() and (self.sigterm.is_set() or jax_heard_sigterm())

    def leave_together(self) -> bool:
        """Wait for all processes before an exit that all of them make. Return whether all came.

        The leader exits last, because the coordination service ends with it and aborts the remaining processes.
        """
        if self.count == 1:
            return True
        try:
            self._client.wait_at_barrier("leave", LEAVE_TIMEOUT_SECONDS * 1000)
        except jax.errors.JaxRuntimeError:
            return False
        if self.leads:
            time.sleep(LEADER_LINGERS_SECONDS)
        return True

    def put(self, key: str, value: object) -> None:
        """Publish this process's current `value` for the others."""
        if self.count > 1:
            self._client.key_value_set(f"{key}/{self.index}", json.dumps(value), allow_overwrite=True)

    def read_all(self, key: str) -> list[Any]:
        """Return the values that processes have published at `key` so far, unordered and without waiting."""
        return [json.loads(value) for _, value in self._client.key_value_dir_get(key)] if self.count > 1 else []

    def publish_failure(self, failure: Mapping[str, object]) -> None:
        """Publish this process's failure, so that the others end too. Only the first failure in the job counts.

        The failed process waits until the others have read it, because its exit breaks their collectives. So does the
        leader, which serves it. If a host is lost, they linger anyway (`ending`), and the others notice it themselves.
        """
        if self.count == 1:
            return
        first = True
        try:
            self._client.key_value_set(FAILURE_KEY, json.dumps(failure))
        except jax.errors.JaxRuntimeError:
            first = False
        if failure["code"] == ExitCode.PREEMPTED:
            # The others hear of SIGTERM from JAX too.
            time.sleep(LEADER_STAYS_SECONDS if self.leads else 0)
        elif (first or self.leads) and failure["code"] != ExitCode.PEER_LOST:
            time.sleep(FAILURE_IS_HEARD_SECONDS)

    def read_failure(self) -> dict[str, Any] | None:
        if self.count == 1:
            return None
        with suppress(jax.errors.JaxRuntimeError):
            return json.loads(self._client.key_value_try_get(FAILURE_KEY))
        return None

    @property
    def _client(self) -> Any:
        """JAX's own connection to its coordination service, which the leader runs."""
        if global_state.client is None:
            raise RuntimeError("several processes must have joined by jax.distributed.initialize before they can agree")
        return global_state.client

    def _read(self, key: str, index: int) -> Any:
        left = self.deadline.seconds_left()
        # The leader times out first, so that it can report to the others which process is missing.
        seconds = max(left - FAILURE_IS_HEARD_SECONDS, left / 2) if self.leads else left
        try:
            return json.loads(self._client.blocking_key_value_get(f"{key}/{index}", math.ceil(1000 * seconds)))
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise
            raise HostMissing(
                f"process {index} of {self.count} did not answer {self.host} within {seconds:.0f} s"
                f" (waited for {key!r}); see that host's log"
            ) from None


def require_coordinator_port(position: HostPosition, environment: Mapping[str, str]) -> None:
    """Check that the port of JAX's coordination service is free on the leader. If not, JAX would exit without an error.

    Raises:
        BadHostStays: something else listens there.
    """
    if position.alone or position.process:
        return
    default = f"[::]:{environment.get('JAX_COORDINATOR_PORT', coordinator_port)}"
    host, _, port = environment.get("JAX_COORDINATOR_BIND_ADDRESS", default).rpartition(":")
    try:
        with socket.socket(socket.AF_INET6 if host.startswith("[") else socket.AF_INET) as candidate:
            candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            candidate.bind((host.strip("[]"), int(port)))
    except OSError as error:
        # Other errors of the address are left to JAX.
        if error.errno == errno.EADDRINUSE:
            raise BadHostStays(
                f"host {position.host}: expected port {port} to be free for JAX's coordination service, but something"
                " listens there; end it, or let the job move to other hosts",
                {Suspect(position.slice, position.host)},
            ) from None


def join(position: HostPosition, start_minutes: float, deadline: Deadline) -> Processes:
    """Join the other processes of the job, which may start up to `start_minutes` later than this one."""
    if position.alone:
        alone = Processes(0, 1, position.host, deadline)
        on_sigterm(alone.sigterm.set)
        return alone
    # The process's position is not passed, because JAX's GKE detection reads it from the same variables.
    jax.distributed.initialize(
        initialization_timeout=int(60 * start_minutes) + JOIN_MARGIN_SECONDS,
        heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT_SECONDS,
        shutdown_timeout_seconds=SHUTDOWN_TIMEOUT_SECONDS,
    )
    return Processes(jax.process_index(), jax.process_count(), position.host, deadline)
