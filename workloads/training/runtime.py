"""The host process among the others: joining, agreeing, being told to stop.

Owns `jax.distributed`, the only use of JAX's private coordination client, and SIGTERM. Knows nothing of
models or storage.
"""

import signal
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import jax
from jax._src.distributed import global_state
from jax.experimental import multihost_utils

HEARTBEAT_TIMEOUT_SECONDS = 20
"""A host that died without closing its sockets is given up after this; its peers then abort and restart."""

SHUTDOWN_TIMEOUT_SECONDS = 15
"""Bounds the barrier at exit: with JAX's default of 300 s one failed host would hold all others that long."""

LEAVE_TIMEOUT_SECONDS = 15
"""How long a process that stops for a known cause waits for the others to stop for it too."""

LEADER_LINGERS_SECONDS = 1.0
"""Time for the others to end after they were all there to leave."""

AGREEMENT_TIMEOUT_SECONDS = 300
"""How long a host waits for another's word, which may come after a slow listing of object storage."""


@dataclass(frozen=True)
class Processes:
    """This host's place among the processes of the job."""

    index: int
    count: int
    host: str
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
            _client().key_value_set(f"{key}/{self.index}", value)
        return self._read(key, 0)

    def gather(self, key: str, value: str) -> list[str]:
        """Every process's `value`, by process index. Each key may be used once."""
        if self.count == 1:
            return [value]
        _client().key_value_set(f"{key}/{self.index}", value)
        return [self._read(key, index) for index in range(self.count)]

    def told_to_stop(self, step: int) -> bool:
        """Whether any process got SIGTERM: the same answer everywhere for the same `step`."""
        if self.count == 1:
            return self.sigterm.is_set()
        return multihost_utils.reached_preemption_sync_point(step)

    def leave_together(self) -> None:
        """Before an exit that every process is about to make: let each end with its own exit code.

        The coordination service ends with the leader and aborts those that are still there, so it goes last.
        """
        if self.count == 1:
            return
        # A peer that does not come has another fault, which its own exit code tells.
        with suppress(jax.errors.JaxRuntimeError):
            _client().wait_at_barrier("leave", LEAVE_TIMEOUT_SECONDS * 1000)
            if self.leads:
                time.sleep(LEADER_LINGERS_SECONDS)

    def _read(self, key: str, index: int) -> str:
        return _client().blocking_key_value_get(f"{key}/{index}", AGREEMENT_TIMEOUT_SECONDS * 1000)


def _client() -> Any:
    if global_state.client is None:
        raise RuntimeError("several processes must have joined by jax.distributed.initialize before they can agree")
    return global_state.client


def join(environment: Mapping[str, str]) -> Processes:
    """Join the processes that GKE's variables in `environment` name; alone when they name one host."""
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    hosts = environment.get("TPU_WORKER_HOSTNAMES", socket.gethostname()).split(",")
    host = hosts[int(environment.get("TPU_WORKER_ID", "0"))]
    if len(hosts) * int(environment.get("MEGASCALE_NUM_SLICES", "1")) == 1:
        alone = Processes(0, 1, host)
        signal.signal(signal.SIGTERM, lambda *_: alone.sigterm.set())
        return alone
    # No arguments that place this process: JAX's own GKE detection reads them from the same variables.
    jax.distributed.initialize(
        heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT_SECONDS, shutdown_timeout_seconds=SHUTDOWN_TIMEOUT_SECONDS
    )
    return Processes(jax.process_index(), jax.process_count(), host)
