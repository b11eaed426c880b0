"""`multislice shell`: a shell, or one command, on a host of a running job.

Owns this side's terminal: what is typed goes over as it is, and the size follows the window's.
"""

import json
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any

from cli.control.host import container
from cli.control.job import asking, find
from cli.deployed import Deployed
from cli.halt import Halt
from cli.observed.pod import leader_of
from infra.remote_command import Channel, Container, NotStarted, RemoteCommand, run

_SHELL = ("sh", "-c", "if command -v bash >/dev/null; then exec bash; else exec sh; fi")
_BLOCK_BYTES = 1 << 15
_SILENCE_SECONDS = 20.0
"""Proxies and load balancers cut connections on which nobody says anything for some minutes."""
_COMMAND_SECONDS = 24 * 3600.0
"""Longer than anybody waits for one command."""


def shell(stack: Deployed, name: str | None, host: str | None, command: str | None, *, as_json: bool) -> int:
    """Run a shell on a host, by default the leader, or `command` in one; its exit code.

    Raises:
        Halt: no such host runs, it has no shell, or the cluster refuses.
    """
    if as_json and command is None:
        raise Halt("expected --command with --json, for a shell has no answer; say which command to run")
    job = find(stack, name)
    place, host = job.place, host or leader_of(job.jobset)
    with asking(f"tell of job {place.name}"):
        where = container(job, host)
    words = _SHELL if command is None else ("sh", "-c", command)
    try:
        with asking(f"run a command on host {host} of job {place.name}"):
            if as_json:
                return _answer(stack, where, host, words)
            terminal = command is None and sys.stdin.isatty() and sys.stdout.isatty()
            with RemoteCommand.start(stack.api, where, words, stdin=True, terminal=terminal) as remote:
                return _talk(remote, terminal=terminal)
    except NotStarted as error:
        raise Halt(f"expected a shell on host {host} of job {place.name}, got: {error}") from None


def _answer(stack: Deployed, where: Container, host: str, words: tuple[str, ...]) -> int:
    ended = run(stack.api, where, words, timeout_seconds=_COMMAND_SECONDS)
    told: dict[str, Any] = {
        "host": host,
        "pod": where.pod,
        "exit_code": ended.exit_code,
        "output": ended.output.decode(errors="replace"),
        "errors": ended.errors.decode(errors="replace"),
    }
    print(json.dumps(told, indent=1))
    return ended.exit_code


def _talk(remote: RemoteCommand, *, terminal: bool) -> int:
    """Carry input and output until the command ends; its exit code."""
    typed = sys.stdin.fileno()
    with ExitStack() as open_things:
        resized = open_things.enter_context(_resizes(remote)) if terminal else None
        if terminal:
            open_things.enter_context(_raw(typed))
        sources: list[Any] = [remote, typed, *([resized] if resized is not None else [])]
        while True:
            # What was decrypted already, `select` does not see.
            ready = [remote] if remote.pending() else select.select(sources, [], [], _SILENCE_SECONDS)[0]
            if not ready:
                remote.ping()
            if remote in ready and not _heard(remote):
                return remote.exit_code or 0
            if resized is not None and resized in ready:
                os.read(resized, _BLOCK_BYTES)
                _tell_size(remote)
            if typed in ready and not _typed(remote, typed):
                sources.remove(typed)


def _heard(remote: RemoteCommand) -> bool:
    """Write what the command says next; False when it has ended."""
    said = remote.receive()
    if said is None:
        return False
    stream = sys.stderr if said[0] is Channel.ERRORS else sys.stdout
    stream.buffer.write(said[1])
    stream.buffer.flush()
    return True


def _typed(remote: RemoteCommand, source: int) -> bool:
    """Send what was typed; False at its end."""
    data = os.read(source, _BLOCK_BYTES)
    if not data:
        remote.end_input()
        return False
    remote.send(data)
    return True


@contextmanager
def _raw(descriptor: int) -> Generator[None]:
    """Every key goes over, Ctrl-C too."""
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def _resizes(remote: RemoteCommand) -> Generator[int]:
    """Readable when the window has another size; the present one is told at once."""
    reader, writer = os.pipe()
    before = signal.signal(signal.SIGWINCH, lambda *_: os.write(writer, b"."))
    try:
        _tell_size(remote)
        yield reader
    finally:
        signal.signal(signal.SIGWINCH, before)
        os.close(reader)
        os.close(writer)


def _tell_size(remote: RemoteCommand) -> None:
    size = os.get_terminal_size(sys.stdout.fileno())
    remote.resize(size.columns, size.lines)
