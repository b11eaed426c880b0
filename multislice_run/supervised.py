"""The side of a process that a supervisor runs in its pod: when it begins, and what it tells the supervisor.

The supervisor passes one socket. A process that waits in advance reads from it when and as what to begin, and every
process writes there that it has done a step, and that it has saved a state.
"""

import json
import os
import socket
from collections.abc import MutableMapping
from contextlib import suppress

SOCKET_VARIABLE = "SUPERVISOR_SOCKET"
"""Environment variable with the descriptor of the socket to the supervisor. Without it there is none."""

STEPPED, SAVED = b"s", b"c"
"""What a process tells: it has done its first step, it has saved its first state."""

_told = set[bytes]()


def is_supervised() -> bool:
    """Return whether a supervisor starts this process again if it fails."""
    return SOCKET_VARIABLE in os.environ


def wait_for_start(environment: MutableMapping[str, str]) -> float:
    """Wait until the supervisor begins an attempt with this process, and set its variables in `environment`.

    Returns:
        The Unix time at which it began. The process ends if the supervisor does not need it.
    """
    with socket.socket(fileno=os.dup(_descriptor())) as link, link.makefile() as lines:
        line = lines.readline()
    if not line:
        os._exit(0)
    start = json.loads(line)
    environment.update(start["variables"])
    return start["began"]


def tell(what: bytes) -> None:
    """Tell the supervisor `what`, once."""
    if is_supervised() and what not in _told:
        _told.add(what)
        with suppress(OSError):
            os.write(_descriptor(), what)


def _descriptor() -> int:
    return int(os.environ[SOCKET_VARIABLE])
