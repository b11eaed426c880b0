"""Answers SIGTERM at once, even while the main thread is in a call that runs no Python, such as a compilation.

Python runs handlers of signals in the main thread, after that call. Its C handler, however, also writes the signal to a
socket, which another thread reads here. Without any handler, the first process of a container ignores the signal.

When JAX joins several hosts, it replaces the C handler: its coordination service then tells all hosts of the signal
that one of them got.
"""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from multislice_run.exit_codes import ExitCode

LEADER_STAYS_SECONDS = 2.0
"""Time that the leader stays after SIGTERM, because JAX's coordination service, from which the others hear of it once a
second, ends with it."""

NOTHING_TO_SAVE = "SIGTERM before the first step of this attempt, which has nothing new to save"

_NOTICE = "RECEIVED_PREEMPTION_NOTICE"
"""Key of the coordination service at which JAX puts the host that got SIGTERM
(xla/tsl/distributed_runtime/preemption/preemption_sync_manager.cc)."""


def on_sigterm(act: Callable[[], None]) -> None:
    """Call `act` in another thread on SIGTERM. It replaces what was called before, and JAX's handler."""
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: None)

    def wait() -> None:
        # The thread keeps the socket open for as long as the C handler may write to it.
        with sender:
            while True:
                if signal.SIGTERM in receiver.recv(1):
                    act()

    threading.Thread(target=wait, name="sigterm", daemon=True).start()


def end_on_sigterm() -> None:
    """End the process on SIGTERM at once, as one that has nothing to save."""
    on_sigterm(lambda: os._exit(ExitCode.PREEMPTED))


def jax_client() -> Any:
    """Return JAX's connection to its coordination service. None without JAX, and before it has joined the hosts."""
    state: Any = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    # The client is there before it is connected, and a query would then abort the process. The manager comes after.
    return state.client if state and state.preemption_sync_manager else None


def jax_heard_sigterm() -> bool:
    """Return whether a host of this process's JAX world got SIGTERM. JAX knows it within a second.

    False before JAX has joined the hosts, and if its coordination service is gone.
    """
    client = jax_client()
    # A key without a value is an error, whose type depends on the version of JAX.
    with suppress(Exception):
        return client is not None and bool(client.key_value_try_get(_NOTICE))
    return False
