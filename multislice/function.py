"""Defines the decorator for functions that run on slices, and the ways to call them.

A call in the foreground shows its output, and prints its states on stderr. Ctrl-C cancels it, because its chips cost
money. A second Ctrl-C during the cancellation leaves it running and prints how to find it.
"""

import functools
import inspect
import reprlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from infra.cluster.job_logs import Line, follow, hosts, leader
from infra.cluster.job_state import LEADER, State
from infra.cluster.kubernetes import UNREACHABLE
from infra.stack.cost import hours
from infra.stack.settings.jobs import Priority
from multislice.call import Call, FunctionLog, Status
from multislice.connection import connect
from multislice.errors import CallError, Outcome, Refused, with_input
from multislice.packing import Project, function_name, pack
from multislice.submission import DEFAULT_MAX_HOURS, CallRequest, submit
from multislice_run.standstill import HANG_MINUTES
from workloads.call.function import itself
from workloads.spec import Backend
from workloads.terminal import inert

Shown = Literal["leader", "all"]


@dataclass(frozen=True)
class Target:
    """Stack of a function's calls, with their settings and folders."""

    stack: str
    request: CallRequest
    hosts: Shown
    ships: Sequence[str | Path]
    sandbox: str | Path | None


class Function[**P, R]:
    """A function whose calls run on slices. On a host of a slice it is the plain function."""

    def __init__(self, function: Callable[P, R], target: Target) -> None:
        """Do not use this directly. Use `run`. Raise Refused if the object cannot be called on slices."""
        if error := _decoration_error(function):
            raise Refused(error)
        functools.update_wrapper(self, function)
        self.function = function
        """The plain function. Calling it runs it here."""
        self._target = target

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function on slices, wait, print the output and return the value of the first host.

        Raises:
            multislice.CallError: The call cannot be submitted, or did not complete.
            BaseException: The function raised it on a host.
        """
        call = self.start(*args, **kwargs)
        return call.take(watch(call, self._target.hosts)).result()

    def __get__(self, instance: object | None, owner: type | None = None) -> "Function[..., R]":
        """Bind the function as a method. The object is sent like any other argument."""
        if instance is None:
            return self
        bound: Any = functools.partial(cast(Callable[..., R], self.function), instance)
        return Function(bound, self._target)

    def start(self, *args: P.args, **kwargs: P.kwargs) -> Call:
        """Submit a call without waiting for it.

        Raises:
            multislice.CallError: The call cannot be submitted.
        """
        (packed,) = pack(self.function, [(args, kwargs)], Project(self._target.ships))
        return submit(packed, self._target.request, connect(self._target.stack, self._target.sandbox))

    def map(self, inputs: Iterable[Any]) -> list[Outcome]:
        """Submit one call for each input, wait for all, and return the outcomes in the order of the inputs.

        A failed call has its error as the outcome and does not stop the others. If this method is interrupted, calls
        that have ended keep their results, and the others are cancelled.

        Raises:
            multislice.Refused: An input cannot be sent. Nothing was submitted.
            multislice.CallError: A call cannot be submitted. The calls before it are cancelled.
        """
        values = list(inputs)
        # Pack all calls first, so that an error in the last one is found before the first one runs.
        packed = pack(self.function, [((value,), {}) for value in values], Project(self._target.ships))
        found = connect(self._target.stack, self._target.sandbox)
        calls: list[Call] = []
        try:
            for each, value in zip(packed, values, strict=True):
                calls.append(submit(each, self._target.request, found))
                say(f"call {calls[-1].id} is for input {reprlib.repr(value)}")
            outcomes = [_wait_for(call) for call in calls]
        except BaseException:
            cancel(calls)
            raise
        # Remove the copies only after all outcomes have arrived, because an interruption would lose the earlier ones.
        # An interruption of the removal itself does no harm.
        with suppress(KeyboardInterrupt):
            for call, outcome in zip(calls, outcomes, strict=True):
                call.take(outcome)
        return [with_input(outcome, value) for outcome, value in zip(outcomes, values, strict=True)]

    def __reduce__(self) -> Any:
        return itself, (self.function,)


def _wait_for(call: Call) -> Outcome:
    """Return the outcome of one of many calls, even if it is an error."""
    try:
        return call.outcome(None, functools.partial(print_status, call))
    except CallError as error:
        return Outcome(None, error=error)


_AUTO: Backend = "direct"
"""Backend that `auto` stands for. Kinetic's own for several hosts is named "pathways", but "does not deploy
Pathways-on-Cloud proxy servers. Each host runs its own JAX process": `_resolve_backend_name` in
kinetic/core/core.py and docs/guides/distributed_training.md of keras-team/kinetic at a958df4."""


def run[**P, R](
    stack: str = "",
    slices: str | None = None,
    *,
    accelerator: str | None = None,
    count: int = 1,
    team: str | None = None,
    priority: Priority = "normal",
    hosts: Shown = "leader",
    max_hours: float = DEFAULT_MAX_HOURS,
    hang_minutes: float | None = HANG_MINUTES,
    check_slices: bool | None = None,
    backend: Backend | Literal["auto"] = "direct",
    ships: str | Path | Sequence[str | Path] = (),
    sandbox: str | Path | None = None,
) -> Callable[[Callable[P, R]], Function[P, R]]:
    """Return a decorator that runs a function on slices, with JAX initialised.

    Args:
        stack: Name of a running stack. It is required.
        slices: Name of one of its slice groups.
        accelerator: Google's name of its slices instead, such as `v6e-16`, if only one group has such slices. The
            number counts chips, or for v4, v5p and 7x TensorCores: two for each chip.
        count: Number of slices of the group.
        team: Team whose queue to use. Default: the stack's only team.
        priority: Priority in the queue.
        hosts: Output to show: `leader`, the first host of the first slice, or `all`, with the names of the hosts.
        max_hours: Longest run time of the function in hours. After it, the hosts are stopped.
        hang_minutes: Time in minutes after which the call ends as a hang if the main threads of all hosts have run no
            Python in it, because each waits for others. It must be longer than any single call into a compiled program
            takes. None: only `max_hours` ends such a call.
        check_slices: Whether all devices must multiply, sum and gather correctly before the function begins. Default:
            yes, except with Pathways, whose servers hold the chips.
        backend: `direct`: the function runs on every host, as one JAX process each. `pathways`: it runs once, and JAX
            has the devices of all hosts; the stack needs the section `functions.pathways`. `auto`: as in Kinetic, one
            JAX process on each host of the slices, one or several.
        ships: Folders with modules of your project, which the image does not have.
        sandbox: Folder of the sandbox that has the stack. Default: your own Pulumi has it.

    Raises:
        Refused: An argument is not valid, or the decorated object cannot be called on slices.
    """
    chosen = _AUTO if backend == "auto" else backend
    checks = chosen != "pathways" if check_slices is None else check_slices
    request = CallRequest(slices, count, team, priority, max_hours, checks, accelerator, chosen, hang_minutes)
    if errors := list(_errors(stack, request, hosts)):
        raise Refused("\n".join(errors))
    folders = (ships,) if isinstance(ships, str | Path) else tuple(ships)
    return functools.partial(Function, target=Target(stack, request, hosts, folders, sandbox))


def _errors(stack: object, request: CallRequest, hosts: object) -> Iterator[str]:
    if not isinstance(stack, str) or not stack:
        yield f"expected the name of a running stack, as in @multislice.run('dev', slices='trillium'), got {stack!r}"
    yield from request.errors()
    for name, got, choices in (
        ("priority", request.priority, get_args(Priority)),
        ("hosts", hosts, get_args(Shown)),
        ("backend", request.backend, (*get_args(Backend), "auto")),
    ):
        if got not in choices:
            yield f"{name} must be one of {', '.join(choices)}, got {got!r}"


def _decoration_error(function: object) -> str | None:
    """Return why calls of the decorated object would fail. Without this check, they would fail only on the hosts."""
    name = function_name(function)
    if isinstance(function, staticmethod | classmethod):
        kind = type(function).__name__  # pyright: ignore[reportUnknownArgumentType]
        return f"expected a function, got the {kind} {name}; put @multislice.run(...) below @{kind}"
    if not callable(function):
        return f"expected a function below @multislice.run(...), got {function!r}"
    if hasattr(function, "cache_clear"):
        return f"expected a function, got the cache of {name}; put @multislice.run(...) below it to cache results here"
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return f"expected a function that returns a value, but {name} is async; call it with asyncio.run in a plain one"
    if inspect.isgeneratorfunction(function):
        return f"expected a function that returns a value, but {name} yields; return list({name}(...)) from a plain one"
    return None


_LAST_LINES_SECONDS = 3.0
"""Time for the last lines of a log to arrive after the result."""


class Screen:
    """Shows what the function prints on each host while it runs."""

    def __init__(self, call: str, shown: Shown, leading: str = LEADER) -> None:
        self.ended = threading.Event()
        """Set when the function has ended on the first host."""
        self.closed = False
        """Whether to show nothing more."""
        self._call = call
        self._shown: Shown = shown
        self._leading = leading
        self._logs: dict[str, FunctionLog] = {}

    def line(self, line: Line) -> None:
        """Show the next line of a host."""
        log = self._logs.setdefault(line.host, FunctionLog(self._call))
        if (text := log.line(line.text)) is not None and not self.closed:
            shown = text if self._shown == "leader" else f"[{line.host}] {text}"
            print(inert(shown) if sys.stdout.isatty() else shown, flush=True)
        if log.ended and line.host == self._leading:
            self.ended.set()


def watch(call: Call, shown: Shown) -> Outcome:
    """Show the output of a call until it ends, and return its outcome."""
    screen = Screen(call.id, shown, call.leader)

    def read() -> None:
        # The main thread reads the status of the call at the same time and reports these errors.
        with suppress(LookupError, *UNREACHABLE):
            follow(call.connection.api, call.namespace, call.id, leader if shown == "leader" else hosts, screen.line)

    reading = threading.Thread(target=read, name=f"output of {call.id}", daemon=True)
    try:
        reading.start()
        found = call.outcome(None, lambda status: print_status(call, status), screen.ended)
    except BaseException as stopped:
        screen.closed = True
        if isinstance(stopped, KeyboardInterrupt):
            cancel([call])
        raise
    reading.join(_LAST_LINES_SECONDS)
    screen.closed = True
    return found


def cancel(calls: Sequence[Call]) -> None:
    """Cancel calls, and print how to get the results of those that have ended.

    After an interruption, the calls that are not cancelled yet continue.
    """
    left = list(calls)
    try:
        while left:
            _cancel(left[0])
            left.pop(0)
    except KeyboardInterrupt:
        for call in left:
            say(f"call {call.id} may still run; find it with {call.again}")
        raise


def _cancel(call: Call) -> None:
    again = call.again
    try:
        if (status := call.status()).state in (State.COMPLETED, State.FAILED):
            say(f"call {call.id} has ended ({status.state}); {again}.result() returns its result")
            return
        call.cancel()
        say(f"call {call.id} is cancelled")
    except CallError as error:
        say(f"call {call.id} is not cancelled and may still run: {error}; end it with {again}.cancel()")


def print_status(call: Call, status: Status) -> None:
    """Print the state of a call, and its time limit once it runs."""
    limit = f", for at most {hours(call.spec.max_hours)} (max_hours)" if status.state is State.RUNNING else ""
    say(f"call {call.id} {status}{limit}")


def say(words: str) -> None:
    """Print words of this package on stderr."""
    print(inert(f"multislice: {words}"), file=sys.stderr, flush=True)
