"""The host process among the others: joining, agreeing, being told to stop.

Owns `jax.distributed`, the only use of JAX's private parts for it, and SIGTERM. Knows nothing of
models or storage.
"""

import errno
import json
import math
import signal
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import jax
from jax._src.clusters.cloud_tpu_cluster import coordinator_port
from jax._src.distributed import global_state
from jax.experimental import multihost_utils

from workloads.training.deadline import Deadline
from workloads.training.failures import BadHostStays, HostMissing, Suspect

HEARTBEAT_TIMEOUT_SECONDS = 100
"""A host that died without closing its sockets is given up half of this later at the earliest, all of it at the
latest; its peers then abort and restart. A host that stands still is named before (`watchdog`). This is JAX's default,
because less would end whole jobs for a host that is merely busy, as it is when it compiles. Google's multislice tests
had to raise it (https://github.com/GoogleCloudPlatform/ml-auto-solutions/pull/1166)."""

SHUTDOWN_TIMEOUT_SECONDS = 15
"""Bounds the barrier at exit: with JAX's default of 300 s one failed host would hold all others that long."""

LEAVE_TIMEOUT_SECONDS = 15
"""How long a process that stops for a known cause waits for the others to stop for it too."""

LEADER_LINGERS_SECONDS = 1.0
"""Time for the others to end after they were all there to leave."""

JOIN_MARGIN_SECONDS = 60
"""JAX aborts a process whose join takes too long and names nobody: our own limit, which does, comes first."""

FAILURE_KEY = "failure"

FAILURE_IS_HEARD_SECONDS = 4.0
"""Every host looks once a second for the word of one that failed, and needs a moment to end."""


@dataclass(frozen=True)
class Place:
    """Where GKE's and JobSet's variables put this process."""

    hosts: tuple[str, ...]
    """Of this slice, in worker order."""
    worker: int
    slice_count: int
    slice: int

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self:
        """Return the place that the variables in `environment` name, of which JAX prefers the same
        (jax/_src/clusters/cloud_tpu_cluster.py)."""
        # Names with ports, on 7x.
        named = environment.get("TPU_PROCESS_ADDRESSES") or environment.get("TPU_WORKER_HOSTNAMES")
        path = environment.get("TPU_PROCESS_ADDRESSES_PATH")
        addresses = Path(path).read_text().strip() if path else named
        return cls(
            tuple(address.partition(":")[0] for address in (addresses or socket.gethostname()).split(",")),
            int(environment.get("TPU_WORKER_ID", "0")),
            int(environment.get("MEGASCALE_NUM_SLICES", "1")),
            int(environment.get("MEGASCALE_SLICE_ID", "0")),
        )

    @property
    def host(self) -> str:
        return self.hosts[self.worker]

    @property
    def process(self) -> int:
        """Index among all processes, as JAX counts them."""
        return self.slice * len(self.hosts) + self.worker

    @property
    def alone(self) -> bool:
        return len(self.hosts) * self.slice_count == 1


@dataclass(frozen=True)
class Processes:
    """This host's place among the processes of the job."""

    index: int
    count: int
    host: str
    deadline: Deadline = field(default_factory=Deadline)
    """What this process is to finish next."""
    sigterm: threading.Event = field(default_factory=threading.Event)
    """Set when a process that is alone was told to stop; among several, JAX's own service keeps that."""

    @property
    def leads(self) -> bool:
        """Whether this process decides and reports for all."""
        return self.index == 0

    def share(self, key: str, value: str) -> str:
        """The leader's `value`, everywhere. Each key may be used once."""
        if self.count == 1:
            return value
        if self.leads:
            self._client.key_value_set(f"{key}/{self.index}", value)
        return self._read(key, 0)

    def gather(self, key: str, value: str) -> list[str]:
        """Every process's `value`, by process index. Each key may be used once.

        The leader collects them and shares the list. If each of N processes read N keys, or listed them all, the
        leader would answer N squared reads: for thousands of processes that takes minutes, or fails.
        """
        if self.count == 1:
            return [value]
        self._client.key_value_set(f"{key}/{self.index}", value)
        words = [self._read(key, index) for index in range(self.count)] if self.leads else []
        return json.loads(self.share(f"{key}/all", json.dumps(words)))

    def told_to_stop(self, step: int) -> bool:
        """Whether any process got SIGTERM: the same answer everywhere for the same `step`."""
        if self.count == 1:
            return self.sigterm.is_set()
        return multihost_utils.reached_preemption_sync_point(step)

    def leave_together(self) -> bool:
        """Before an exit that every process is about to make: whether all came, so that each may end by itself.

        The coordination service ends with the leader and aborts those that are still there, so it goes last.
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

    def put(self, key: str, value: str) -> None:
        """Leave this process's present `value` for the others; they need not read it."""
        if self.count > 1:
            self._client.key_value_set(f"{key}/{self.index}", value, allow_overwrite=True)

    def left(self, key: str) -> list[str]:
        """What the processes left at `key` so far, in no order; waits for nobody."""
        return [value for _, value in self._client.key_value_dir_get(key)] if self.count > 1 else []

    def tell_failure(self, word: str) -> None:
        """Before this process fails: end the others too. Only the first word in the job counts.

        Whoever said it stays until it is heard, since its exit breaks the collectives of the others; so does
        the leader, who passes it on.
        """
        if self.count == 1:
            return
        first = True
        try:
            self._client.key_value_set(FAILURE_KEY, word)
        except jax.errors.JaxRuntimeError:
            first = False
        if first or self.leads:
            time.sleep(FAILURE_IS_HEARD_SECONDS)

    def hear_failure(self) -> str | None:
        """The word of a process that failed, if any did."""
        if self.count == 1:
            return None
        with suppress(jax.errors.JaxRuntimeError):
            return self._client.key_value_try_get(FAILURE_KEY)
        return None

    @property
    def _client(self) -> Any:
        """JAX's own connection to its coordination service, which the leader runs."""
        if global_state.client is None:
            raise RuntimeError("several processes must have joined by jax.distributed.initialize before they can agree")
        return global_state.client

    def _read(self, key: str, index: int) -> str:
        left = self.deadline.seconds_left()
        # The leader gives up first, so that the others hear from it which process is missing.
        seconds = max(left - FAILURE_IS_HEARD_SECONDS, left / 2) if self.leads else left
        try:
            return self._client.blocking_key_value_get(f"{key}/{index}", math.ceil(1000 * seconds))
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise
            raise HostMissing(
                f"process {index} of {self.count} did not answer {self.host} within {seconds:.0f} s"
                f" (waited for {key!r}); look at that host's log"
            ) from None


def require_coordinator_port(place: Place, environment: Mapping[str, str]) -> None:
    """Before JAX's coordination service listens on the leader: without its port JAX ends the process without a word.

    Raises:
        BadHostStays: something else listens there.
    """
    if place.alone or place.process:
        return
    default = f"[::]:{environment.get('JAX_COORDINATOR_PORT', coordinator_port)}"
    host, _, port = environment.get("JAX_COORDINATOR_BIND_ADDRESS", default).rpartition(":")
    try:
        with socket.socket(socket.AF_INET6 if host.startswith("[") else socket.AF_INET) as candidate:
            candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            candidate.bind((host.strip("[]"), int(port)))
    except OSError as error:
        # Whatever else is wrong with the address, JAX may know better.
        if error.errno == errno.EADDRINUSE:
            raise BadHostStays(
                f"host {place.host}: expected port {port} to be free for JAX's coordination service, but something"
                " listens there; end it, or let the job move to other hosts",
                {Suspect(place.slice, place.host)},
            ) from None


def join(place: Place, start_minutes: float, deadline: Deadline) -> Processes:
    """Join the other processes of the job, which may come up to `start_minutes` later than this one."""
    if place.alone:
        alone = Processes(0, 1, place.host, deadline)
        signal.signal(signal.SIGTERM, lambda *_: alone.sigterm.set())
        return alone
    # No arguments that place this process: JAX's own GKE detection reads them from the same variables.
    jax.distributed.initialize(
        initialization_timeout=int(60 * start_minutes) + JOIN_MARGIN_SECONDS,
        heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT_SECONDS,
        shutdown_timeout_seconds=SHUTDOWN_TIMEOUT_SECONDS,
    )
    return Processes(jax.process_index(), jax.process_count(), place.host, deadline)
