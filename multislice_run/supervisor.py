"""Starts the program of a pod again in the same pod, together with the programs of all other pods of the job.

    python -m multislice_run.supervisor [--in-advance] --max-restarts N --start-minutes N -- COMMAND

When a pod ends, its place on a node and its memory are gone with it, and have to come back before a new one can train.
So the pod stays when its program fails. When the programs of all pods have ended, `worlds` forms the next attempt.

Exit codes that end the job, or that need another node, end the pod, and so does SIGTERM. JobSet decides what follows.

With `--in-advance`, the next process starts after the first step of the present one. It does its imports, and waits for
its attempt (`supervised.wait_for_start`).
"""

import argparse
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import NoReturn, TypeVar

from etils import epath

from multislice_run.attempt_facts import AttemptFacts
from multislice_run.ending import Ending, Failure, silence_storage
from multislice_run.exit_codes import ENDS_THE_POD, ExitCode, exit_name
from multislice_run.pod import JOB_FOLDER_VARIABLE, START_VARIABLE, HostPosition, attempt_begins
from multislice_run.sigterm import on_sigterm
from multislice_run.supervised import SAVED, SIGNALLED, STEPPED, Program
from multislice_run.worlds import (
    Ended,
    Ready,
    Roll,
    World,
    Worlds,
    began,
    complete_slices,
    next_number,
    next_world,
    outlived,
    pause_seconds,
    pod_id,
)

_Found = TypeVar("_Found")

LOOKS_EVERY_SECONDS = 20.0
"""Time after which a pod looks whether others have left the present attempt, or cannot take part in it."""

_ALONE_SECONDS = 5.0
"""Time in which a process ends whose peers have left the attempt. It may be about to leave it too."""

_POLL_SECONDS = (0.1, 1.0)
"""Shortest and longest time between two looks at the storage while an attempt is formed."""


@dataclass(frozen=True)
class Settings:
    """What the command line says."""

    command: Sequence[str]
    in_advance: bool
    max_restarts: int
    min_slices: int | None
    """Number of slices that may go on without the others. None: all have to be there."""
    wait_seconds: float
    """Time that they wait for the others."""
    start_minutes: float
    grace_seconds: float
    """Time in which the program ends after SIGTERM."""
    slices: int | None
    """Number of slices of the job. None: what the variables of the pod say."""
    hosts: int | None
    """Number of hosts of a slice. None: what the variables of the pod say."""


class Supervisor:
    """The supervisor of one pod."""

    def __init__(self, settings: Settings, environment: Mapping[str, str]):
        """Raises KeyError if a variable of the pod is missing."""
        silence_storage()
        now = time.time()
        self._settings = settings
        self._position = position = HostPosition.of(environment)
        self._hosts, self._slices = len(position.hosts), position.slice_count
        self._fewest = self._slices if settings.min_slices is None else settings.min_slices
        self._may_make = position.worker == 0 and (position.slice == 0 or self._fewest < self._slices)
        """Whether this host may be the first one of an attempt, which makes it."""
        self._start = AttemptFacts.of(environment, now, position.slice_count)
        self._storage = epath.Path(environment[JOB_FOLDER_VARIABLE])
        self._worlds = Worlds(self._storage, self._start.run_id)
        self._new = Ready(position.host, _address(environment), pod_id(now, secrets.token_hex(4)))
        self._program: Program | None = None
        self._in_advance: Program | None = None
        self._terminated = False

    def run(self) -> int:
        """Run attempts until the pod has to end. Return its exit code."""
        on_sigterm(self._terminate)
        self._check_position()
        ready, before = self._new, self._newest()
        while True:
            self._prepare()
            world = self._form(before, ready)
            code, saved = self._attempt(world)
            ready = replace(self._new, code=code, ended=time.time(), saved=saved)
            if code in ENDS_THE_POD or self._terminated:
                self._leave(world, code)
                return code
            print(f"attempt {world.number + 1} of the job ended with {exit_name(code)} on this host", flush=True)
            before = world

    def _check_position(self) -> None:
        """End the pod if its variables name other hosts than the job has, for which it would wait."""
        slices, hosts = self._settings.slices or self._slices, self._settings.hosts or self._hosts
        if faults := self._position.faults(slices, slices, hosts):
            self._end(ExitCode.INVALID_SPEC, "; ".join(faults))

    def _newest(self) -> World | None:
        found = self._patiently(lambda: [self._worlds.newest()], self._deadline())
        if found is None:
            self._end(ExitCode.HANG, f"{self._storage} did not answer within {self._settings.start_minutes:g} minutes")
        return found[0]

    def _prepare(self) -> None:
        if self._settings.in_advance and self._in_advance is None:
            self._in_advance = Program(self._settings.command, {})

    def _attempt(self, world: World) -> tuple[int, bool]:
        """Run one attempt. Return the exit code, and whether it saved a state."""
        print(attempt_begins(world.number), flush=True)
        variables = self._variables(world)
        program, self._in_advance = self._in_advance, None
        if program is None:
            program = Program(self._settings.command, variables)
        elif not self._terminated:
            program.begin(variables)
        self._program = program
        if self._terminated:
            program.kill()
        code = self._watch(program, world)
        self._program = None
        if code > SIGNALLED and code not in set(ExitCode):
            self._note(program, world, f"the process was killed by {signal.Signals(code - SIGNALLED).name}", code)
        return code, SAVED in program.told

    def _note(self, program: Program, world: World, cause: str, code: int) -> None:
        """Record the end of a process that did not do it, or does not know why it was stopped."""
        start = replace(self._start, restart_attempt=world.number, began=program.began)
        Ending(self._storage, start, self._position.host).note(Failure(cause, self._position.host, code, time.time()))

    def _variables(self, world: World) -> dict[str, str]:
        variables = {START_VARIABLE: str(world.number)}
        if len(world.slices) == self._slices:
            return variables
        return variables | {
            "MEGASCALE_NUM_SLICES": str(len(world.slices)),
            "MEGASCALE_SLICE_ID": str(world.slices.index(self._position.slice)),
            "MEGASCALE_COORDINATOR_ADDRESS": world.coordinator,
        }

    def _watch(self, program: Program, world: World) -> int:
        """Return the exit code of the process when it has ended.

        It gets SIGTERM, and is killed after its time, if it has not noticed that others have left the attempt, or if
        a pod waits for the next one.
        """
        following = self._roll(world.number + 1)
        looked = time.monotonic()
        while (code := program.wait(LOOKS_EVERY_SECONDS)) is None:
            if STEPPED in program.told:
                self._prepare()
            if time.monotonic() - looked >= LOOKS_EVERY_SECONDS:
                looked = time.monotonic()
                if (seconds := self._seconds_left(world, following)) is not None:
                    code = self._stop(program, seconds)
                    if code in (ExitCode.PREEMPTED, ExitCode.PEER_LOST):
                        self._note(program, world, "stopped, because other pods wait for the next attempt", code)
                    return code
        return code

    def _seconds_left(self, world: World, following: Roll) -> float | None:
        """Return the time in which the process has to end, because others have left the attempt, which it cannot save
        without them, or because all hosts of a further slice are there. None: it may go on."""
        first, last = world.slices[0] * self._hosts, (world.slices[-1] + 1) * self._hosts - 1
        # Whatever storage raises: it is asked again.
        with suppress(Exception):
            # All others leave it together, so that two of them are enough.
            if following.signed({first, last} - {self._position.process}):
                return _ALONE_SECONDS
            if following.is_wanted():
                ready = following.signed(range(self._slices * self._hosts))
                if any(index // self._hosts in world.slices for index in ready):
                    return _ALONE_SECONDS
                if {*complete_slices(ready, self._slices, self._hosts)} - {*world.slices}:
                    return self._settings.grace_seconds
        return None

    def _stop(self, program: Program, seconds: float) -> int:
        program.send(signal.SIGTERM)
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if (code := program.wait(left)) is not None:
                return code
        program.kill()
        program.wait(LOOKS_EVERY_SECONDS)
        return int(ExitCode.PEER_LOST)

    def _form(self, before: World | None, ready: Ready) -> World:
        """Return the next world with this pod."""
        while True:
            number = next_number(before)
            self._start = replace(self._start, restart_attempt=number, began=time.time())
            roll, until = self._roll(number), self._deadline()
            signed = partial(self._sign, roll, ready, wants=ready.code is None and number > 0)
            if self._patiently(signed, until):
                found, since = {self._position.process: ready}, time.monotonic()
                world = self._patiently(partial(self._look, before, roll, found, since), until)
            else:
                world = None
            if world is None:
                missing = self._missing(roll) or "all hosts are ready, but the first one does not begin it"
                limit = f"{self._settings.start_minutes:g} minutes"
                self._end(ExitCode.HANG, f"attempt {number + 1} did not begin within {limit}: {missing}")
            if self._new.pod in world.pods:
                return world
            before, ready = world, replace(ready, code=None)

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
        if not roll.sign(self._position.process, ready):
            self._end(ExitCode.PREEMPTED, "another pod has taken the place of this one")
        if wants:
            roll.want()
        return True

    def _look(self, before: World | None, roll: Roll, found: dict[int, Ready], since: float) -> World | None:
        """Return the world after `before`, if it is there. The first host of the first slice of it makes it.

        `found` has the hosts that are ready. `since` is when this one was.
        """
        if world := self._worlds.find(next_number(before)):
            return world
        ended = roll.ended()
        if ended and ended.time > began(self._new.pod):
            self._end(ended.code, ended.cause)
        if not self._may_make:
            return None
        signed = roll.signed(index for index in range(self._slices * self._hosts) if index not in found)
        # Pods that have ended with the job may have signed before.
        found |= {index: each for index, each in signed.items() if not ended or began(each.pod) > ended.time}
        for index in outlived(found, before, self._hosts):
            del found[index]
        slices = complete_slices(found, self._slices, self._hosts)
        waits = len(slices) < self._slices and time.monotonic() - since < self._settings.wait_seconds
        if waits or len(slices) < self._fewest or slices[0] != self._position.slice:
            return None
        # Slices that come back wait for those of the attempt before, which may still run without them.
        if before and not {*before.slices} & {*slices}:
            return None
        return self._make(before, slices, found)

    def _make(self, before: World | None, slices: Sequence[int], found: Mapping[int, Ready]) -> World:
        ready = [found[index * self._hosts + host] for index in slices for host in range(self._hosts)]
        world = next_world(before, slices, ready, self._settings.max_restarts)
        number = next_number(before)
        if isinstance(world, Ended):
            self._roll(number).end(world)
            self._end(world.code, world.cause)
        if seconds := pause_seconds(world.fruitless):
            print(f"attempt {number + 1} begins in {seconds:g} s: {world.fruitless} in a row saved nothing", flush=True)
            time.sleep(seconds)
        world = self._worlds.form(replace(world, began=time.time()))
        self._roll(number - 1).forget()
        return world

    def _leave(self, world: World, code: int) -> None:
        """Tell pods that wait for the next attempt that there is none."""
        if code not in ENDS_THE_POD:
            return
        cause = f"host {self._position.host} ended with {exit_name(code)}"
        if code == ExitCode.DONE and world.pods[0] != self._new.pod:
            # The first host records the end of a run. If it has failed meanwhile, only a restart of all pods helps.
            code = ExitCode.HANG
        # Storage may be what failed, and the others have a time limit.
        with suppress(Exception):
            roll = self._roll(world.number + 1)
            if code != ExitCode.HANG or not roll.ended():
                roll.end(Ended(int(code), cause, time.time()))

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
        ending = Ending(self._storage, self._start, self._position.host)
        # The other codes follow from an exit that has a record.
        elsewhere = code not in (ExitCode.HANG, ExitCode.INVALID_SPEC)
        ending.fail(Failure(cause, self._position.host, code, time.time(), elsewhere=elsewhere))

    def _roll(self, number: int) -> Roll:
        return Roll(self._storage, self._start.run_id, number)

    def _missing(self, roll: Roll) -> str:
        try:
            return roll.missing(self._slices, self._hosts)
        except Exception as error:  # noqa: BLE001 - storage may be what fails, but the pod must end anyway
            return f"the roll in storage cannot be read: {error}"

    def _deadline(self) -> float:
        return time.monotonic() + 60 * self._settings.start_minutes


def _address(environment: Mapping[str, str]) -> str:
    """Return the name by which other slices reach this host: its own, in the subdomain of the first host."""
    _, _, subdomain = environment.get("MEGASCALE_COORDINATOR_ADDRESS", "").partition(".")
    return f"{socket.gethostname()}.{subdomain}" if subdomain else socket.gethostname()


def main() -> int:
    """Run the supervisor of this pod."""
    parser = argparse.ArgumentParser(prog="python -m multislice_run.supervisor")
    parser.add_argument("--in-advance", action="store_true", help="the program can wait for its attempt")
    parser.add_argument("--max-restarts", type=int, required=True, help="restarts that count, before the job fails")
    parser.add_argument("--min-slices", type=int, help="slices that go on without the others; default: all")
    parser.add_argument("--wait-seconds", type=float, default=0.0, help="time that they wait for the others")
    parser.add_argument("--start-minutes", type=float, required=True, help="time in which all pods become ready")
    parser.add_argument("--grace-seconds", type=float, default=60.0, help="time in which the program ends on SIGTERM")
    parser.add_argument("--slices", type=int, help="slices of the job; default: what the variables of the pod say")
    parser.add_argument("--hosts", type=int, help="hosts of a slice; default: what the variables of the pod say")
    parser.add_argument("command", nargs="+", help="the program and its arguments, after --")
    given = parser.parse_args()
    try:
        supervisor = Supervisor(Settings(**vars(given)), os.environ)
    except (KeyError, ValueError) as fault:
        print(f"stopped: the variables of the pod are not valid: {fault}", file=sys.stderr)
        return int(ExitCode.INVALID_SPEC)
    return supervisor.run()


if __name__ == "__main__":
    sys.exit(main())
