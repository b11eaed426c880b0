"""Starts the program of a pod again in the same pod, together with the programs of all other pods of the job.

    python -m multislice_run.supervisor [--in-advance] --max-restarts N --start-minutes N -- COMMAND

When a pod ends, its place on a node and its memory are gone with it, and have to come back before a new one can train.
So the pod stays when its program fails. When the programs of all pods have ended, `worlds` forms the next attempt.

Exit codes that end the job, or that need another node, end the pod, and so does SIGTERM. JobSet decides what follows.

With `--in-advance`, the next process starts after the first step of the present one. It does its imports, and waits for
its attempt (`supervised.wait_for_start`).
"""

import argparse
import ctypes
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import NoReturn, TypeVar

from etils import epath

from multislice_run.ending import Ending, Failure
from multislice_run.place import Place
from multislice_run.pod import JOB_FOLDER_VARIABLE, START_VARIABLE, ExitCode, exit_name
from multislice_run.sigterm import on_sigterm
from multislice_run.start import Start
from multislice_run.supervised import SAVED, SOCKET_VARIABLE, STEPPED
from multislice_run.worlds import (
    ENDS_THE_POD,
    Ready,
    Roll,
    World,
    newest_world,
    next_number,
    next_world,
    pause_seconds,
    pod_id,
    write_world,
)

_Found = TypeVar("_Found")

LOOKS_EVERY_SECONDS = 20.0
"""Time after which a pod looks whether another one cannot take part in the present attempt."""

_POLL_SECONDS = (0.1, 1.0)
"""Shortest and longest time between two looks at the storage while an attempt is formed."""

_SIGNALLED = 128
"""Exit codes above it stand for a signal, as in a shell."""

_PDEATHSIG = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


class Program:
    """A process of the program, which ends with this one."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str]):
        self._link, theirs = socket.socketpair()
        with theirs:
            environment = {**os.environ, **variables, SOCKET_VARIABLE: str(theirs.fileno())}
            # The signal comes when the thread that forked ends, so that only the main thread may do this.
            self._process = subprocess.Popen(
                command,
                env=environment,
                pass_fds=[theirs.fileno()],
                process_group=0,
                preexec_fn=_end_with_the_parent,
            )
        self._end = os.pidfd_open(self._process.pid)
        self.told = set[bytes]()

    def begin(self, variables: Mapping[str, str]) -> None:
        """Begin an attempt with a process that waits."""
        start = {"variables": dict(variables), "began": time.time()}
        with suppress(OSError):
            # If the process has ended while it waited, its exit code says why.
            self._link.sendall(json.dumps(start).encode() + b"\n")

    def wait(self, seconds: float) -> int | None:
        """Wait for the end or for what the process tells. Return the exit code, as a shell does, if it has ended."""
        watched = select.poll()
        watched.register(self._end, select.POLLIN)
        watched.register(self._link, select.POLLIN)
        ready = [descriptor for descriptor, _ in watched.poll(1000 * seconds)]
        if self._link.fileno() in ready:
            with suppress(BlockingIOError):
                told = self._link.recv(16, socket.MSG_DONTWAIT)
                self.told.update(bytes([each]) for each in told)
                if not told:
                    # Its copies of the socket are closed, and only its end is left to wait for.
                    watched.unregister(self._link)
                    ready = [descriptor for descriptor, _ in watched.poll(1000 * seconds)]
        if self._end not in ready:
            return None
        code = self._process.wait()
        self.kill()
        return code if code >= 0 else _SIGNALLED - code

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process alone."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._end, number)

    def kill(self) -> None:
        """Kill the process with all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _end_with_the_parent() -> None:
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)


@dataclass(frozen=True)
class Settings:
    """What the command line says."""

    command: Sequence[str]
    in_advance: bool
    max_restarts: int
    start_minutes: float


class Supervisor:
    """The supervisor of one pod."""

    def __init__(self, settings: Settings, environment: Mapping[str, str]):
        """Raises KeyError if a variable of the pod is missing."""
        began = time.time()
        self._settings = settings
        self._place = Place.of(environment)
        self._start = Start.of(environment, began, self._place.slice_count)
        self._storage = epath.Path(environment[JOB_FOLDER_VARIABLE])
        self._pod = pod_id(began, secrets.token_hex(4))
        self._program: Program | None = None
        self._in_advance: Program | None = None
        self._terminated = False

    def run(self) -> int:
        """Run attempts until the pod has to end. Return its exit code."""
        on_sigterm(self._terminate)
        ready = Ready(self._place.host, self._pod)
        until = time.monotonic() + 60 * self._settings.start_minutes
        known = self._patiently(lambda: [newest_world(self._storage, self._start.run_id)], until)
        if known is None:
            self._end(ExitCode.HANG, f"{self._storage} did not answer within {self._settings.start_minutes:g} minutes")
        (before,) = known
        while True:
            self._prepare()
            world = self._form(before, ready)
            code, saved = self._attempt(world)
            ready = Ready(self._place.host, self._pod, code, time.time(), saved)
            if code in ENDS_THE_POD or self._terminated:
                self._leave(world, ready)
                return code
            print(f"attempt {world.number + 1} of the job ended with {exit_name(code)} on this host", flush=True)
            before = world

    def _prepare(self) -> None:
        if self._settings.in_advance and self._in_advance is None:
            self._in_advance = Program(self._settings.command, {})

    def _attempt(self, world: World) -> tuple[int, bool]:
        """Run one attempt. Return the exit code, and whether it saved a state."""
        variables = {START_VARIABLE: str(world.number)}
        program, self._in_advance = self._in_advance, None
        if program is None:
            program = Program(self._settings.command, variables)
        elif not self._terminated:
            program.begin(variables)
        self._program = program
        if self._terminated:
            program.kill()
        code = self._watch(program, Roll(self._storage, self._start.run_id, world.number + 1))
        self._program = None
        if code > _SIGNALLED and code not in set(ExitCode):
            name = signal.Signals(code - _SIGNALLED).name
            start = replace(self._start, restart_attempt=world.number, began=time.time())
            failure = Failure(f"the process was killed by {name}", [], self._place.host, code, time.time())
            Ending(self._storage, start, self._place.host).note(failure)
        return code, SAVED in program.told

    def _watch(self, program: Program, following: Roll) -> int:
        """Return the exit code of the process when it has ended. It is killed if a pod wants the next attempt."""
        looked = time.monotonic()
        while (code := program.wait(LOOKS_EVERY_SECONDS)) is None:
            if STEPPED in program.told:
                self._prepare()
            if time.monotonic() - looked >= LOOKS_EVERY_SECONDS:
                looked = time.monotonic()
                if following.is_wanted():
                    program.kill()
                    program.wait(LOOKS_EVERY_SECONDS)
                    return int(ExitCode.PEER_LOST)
        return code

    def _form(self, before: World | None, ready: Ready) -> World:
        """Return the next world with this pod, when all pods are ready."""
        while True:
            number = next_number(before)
            roll = Roll(self._storage, self._start.run_id, number)
            until = time.monotonic() + 60 * self._settings.start_minutes
            self._patiently(partial(self._sign, roll, ready, wants=ready.code is None and number > 0), until)
            found: dict[int, Ready] = {self._place.process: ready}
            world = self._patiently(partial(self._look, before, roll, found), until)
            if world is None:
                count, hosts = self._place.slice_count, len(self._place.hosts)
                missing = roll.missing(count, hosts) or "all hosts are ready, but process 0 does not begin it"
                limit = f"{self._settings.start_minutes:g} minutes"
                self._end(ExitCode.HANG, f"attempt {number + 1} did not begin within {limit}: {missing}")
            if world.ends == ExitCode.RESTARTS_USED_UP:
                used = f"the job has used up its {self._settings.max_restarts} restarts"
                self._end(world.ends, f"{used}: attempt {world.number} ended with {world.cause}")
            if world.ends is not None:
                self._end(world.ends, f"another host ended with {world.cause}")
            if self._pod in world.pods:
                return world
            before = world

    def _patiently(self, act: Callable[[], _Found | None], until: float) -> _Found | None:
        """Return what `act` finds, as soon as it finds something. None: it found nothing in time.

        Errors of storage are not the end: the next attempt could not begin without it anyway.
        """
        pause, longest = _POLL_SECONDS
        while time.monotonic() < until:
            try:
                if (found := act()) is not None:
                    return found
            except Exception as error:  # noqa: BLE001 - each object store has exceptions of its own
                print(f"{self._storage} does not answer, trying again: {type(error).__name__}: {error}", flush=True)
                pause = longest
            time.sleep(pause)
            pause = min(longest, 1.2 * pause)
        return None

    def _sign(self, roll: Roll, ready: Ready, *, wants: bool) -> bool:
        if not roll.sign(self._place.process, ready):
            self._end(ExitCode.PREEMPTED, "another pod has taken the place of this one")
        if wants:
            roll.want()
        return True

    def _look(self, before: World | None, roll: Roll, found: dict[int, Ready]) -> World | None:
        """Return the world after `before`, if it is there. Process 0 makes it when all pods are in `found`."""
        world = newest_world(self._storage, self._start.run_id)
        if world and world != before and world.number >= next_number(before):
            return world
        if self._place.process:
            return None
        count = len(self._place.hosts) * self._place.slice_count
        # Pods that a world has ended may have signed before.
        ended = before.pods if before and before.ends is not None else ()
        found |= roll.signed((process for process in range(count) if process not in found), ended)
        return self._make(before, found) if len(found) == count else None

    def _make(self, before: World | None, ready: Mapping[int, Ready]) -> World:
        world = next_world(before, ready, self._settings.max_restarts)
        if seconds := pause_seconds(world.fruitless) if world.ends is None else 0.0:
            print(
                f"attempt {world.number + 1} begins in {seconds:g} s, because {world.fruitless} in a row saved nothing"
            )
            time.sleep(seconds)
        write_world(self._storage, self._start.run_id, world)
        Roll(self._storage, self._start.run_id, world.number - 1).forget()
        return world

    def _leave(self, world: World, ready: Ready) -> None:
        """Tell pods that wait for the next attempt that there is none."""
        if ready.code is None or ready.code not in ENDS_THE_POD:
            return
        number = world.number + 1
        # Storage may be what failed, and the others have a time limit.
        with suppress(Exception):
            if self._place.process == 0:
                last = replace(world, number=number, cause=exit_name(ready.code), ends=ready.code)
                write_world(self._storage, self._start.run_id, last)
            else:
                Roll(self._storage, self._start.run_id, number).sign(self._place.process, ready)

    def _terminate(self) -> None:
        self._terminated = True
        program = self._program
        if program is None:
            os._exit(ExitCode.PREEMPTED)
        program.send(signal.SIGTERM)

    def _end(self, code: int, cause: str) -> NoReturn:
        """End the pod, for a cause that no process of the program has."""
        if code == ExitCode.DONE:
            os._exit(code)
        ending = Ending(self._storage, self._start, self._place.host)
        ending.fail(Failure(cause, [], self._place.host, code, time.time()))


def main() -> int:
    """Run the supervisor of this pod."""
    parser = argparse.ArgumentParser(prog="python -m multislice_run.supervisor")
    parser.add_argument("--in-advance", action="store_true", help="the program can wait for its attempt")
    parser.add_argument("--max-restarts", type=int, required=True, help="restarts that count, before the job fails")
    parser.add_argument("--start-minutes", type=float, required=True, help="time in which all pods become ready")
    parser.add_argument("command", nargs="+", help="the program and its arguments, after --")
    given = parser.parse_args()
    settings = Settings(given.command, given.in_advance, given.max_restarts, given.start_minutes)
    try:
        supervisor = Supervisor(settings, os.environ)
    except (KeyError, ValueError) as fault:
        print(f"stopped: the variables of the pod are not valid: {fault}", file=sys.stderr)
        return int(ExitCode.INVALID_SPEC)
    return supervisor.run()


if __name__ == "__main__":
    sys.exit(main())
