"""A function that runs on slices: the decorator and the ways to call it."""

import functools
import inspect
import reprlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

from infra.settings.jobs import Priority
from multislice.call import Call
from multislice.errors import CallError, Refused
from multislice.outcome import Outcome, of_input
from multislice.packing import Code, function_name, pack
from multislice.place import place
from multislice.project import Project
from multislice.submission import MOST_HOURS, Wish, submit
from multislice.watching import Shown, cancel, tell, tell_input, watched
from workloads.call.function import itself

MAX_HOURS = 24.0
"""Of a function that says nothing else; no call holds chips without an end."""


@dataclass(frozen=True)
class Target:
    """Where the calls of a function go, and what goes with them."""

    stack: str
    wish: Wish
    hosts: Shown
    ships: Sequence[str | Path]
    sandbox: Path | None
    """None: the stack is one of the user's own Pulumi."""


class Function[**P, R]:
    """A function whose calls run on slices; on a host of a slice it is the function itself."""

    def __init__(self, function: Callable[P, R], target: Target) -> None:
        """Use `run` instead, which says what there is to say."""
        functools.update_wrapper(self, function)
        self.function = function
        """As it was written; a call of it runs here."""
        self._target = target

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call on slices and wait; the first host's output is printed here, its value returned.

        Raises:
            multislice.CallError: the call cannot be made, or did not come to its end.
            BaseException: what the function raised on any host.
        """
        call = self.start(*args, **kwargs)
        return call.taken(watched(call, self._target.hosts)).result()

    def __get__(self, instance: object | None, owner: type | None = None) -> "Function[..., R]":
        """As a method of an object, which travels as any argument does."""
        if instance is None:
            return self
        bound: Any = functools.partial(cast(Callable[..., R], self.function), instance)
        return Function(bound, self._target)

    def start(self, *args: P.args, **kwargs: P.kwargs) -> Call:
        """Submit a call and do not wait for it.

        Raises:
            multislice.CallError: it cannot be made.
        """
        packed = pack(self.function, args, kwargs, Project(self._target.ships))
        return submit(packed, self._target.wish, place(self._target.stack, self._target.sandbox))

    def map(self, inputs: Iterable[Any]) -> list[Outcome]:
        """Call once for each input, all of them through the queue, and wait; in the order of the inputs.

        One that fails keeps its error, and stops no other. If this is stopped, calls that have ended keep their
        results, and the others are cancelled.

        Raises:
            multislice.Refused: an input cannot travel; nothing was submitted.
            multislice.CallError: a call cannot be made; those before it are cancelled.
        """
        values, code = list(inputs), Code.of(self.function, Project(self._target.ships))
        # All at once, so that what the last one is refused for is not found out when the first one runs.
        packed = [code.called((value,), {}) for value in values]
        found = place(self._target.stack, self._target.sandbox)
        calls: list[Call] = []
        try:
            for each, value in zip(packed, values, strict=True):
                calls.append(submit(each, self._target.wish, found))
                tell_input(calls[-1], reprlib.repr(value))
            outcomes = [_awaited(call) for call in calls]
        except BaseException:
            cancel(calls)
            raise
        # Not before all are here, or an interruption would lose those that are; of this one nobody need hear.
        with suppress(KeyboardInterrupt):
            for call, outcome in zip(calls, outcomes, strict=True):
                call.taken(outcome)
        return [of_input(outcome, value) for outcome, value in zip(outcomes, values, strict=True)]

    def __reduce__(self) -> Any:
        return itself, (self.function,)


def _awaited(call: Call) -> Outcome:
    """What became of one call of many, which stops no other, whatever it was."""
    try:
        return call.outcome(None, functools.partial(tell, call))
    except CallError as error:
        return Outcome(None, error=error)


def run[**P, R](
    stack: str,
    slices: str,
    *,
    count: int = 1,
    team: str | None = None,
    priority: Priority = "normal",
    hosts: Shown = "leader",
    max_hours: float = MAX_HOURS,
    check_slices: bool = True,
    ships: str | Path | Sequence[str | Path] = (),
    sandbox: str | Path | None = None,
) -> Callable[[Callable[P, R]], Function[P, R]]:
    """Have a function run on every host of slices, with JAX ready.

    Args:
        stack: name of a stack that is up.
        slices: name of one of its slice groups.
        count: slices of the group, all at once.
        team: whose queue; unset, the stack's only team.
        priority: in that queue.
        hosts: whose output a call shows: that of the first host of the first slice, or `all` with their names.
        max_hours: hours that the function may take once it runs; then its hosts are ended.
        check_slices: whether all devices must first multiply, sum and gather correctly.
        ships: folders with modules of your project, which the image does not have.
        sandbox: folder of the sandbox that has the stack; unset, your own Pulumi.

    Raises:
        Refused: an argument is none of those, or what is decorated cannot be called so.
    """
    wish = Wish(slices, count, team, priority, max_hours, check_slices)
    if errors := list(_errors(wish, hosts)):
        raise Refused("\n".join(errors))
    folders = (ships,) if isinstance(ships, str | Path) else tuple(ships)
    target = Target(stack, wish, hosts, folders, None if sandbox is None else Path(sandbox))

    def decorated(function: Callable[P, R]) -> Function[P, R]:
        if error := _decoration_error(function):
            raise Refused(error)
        return Function(function, target)

    return decorated


def _errors(wish: Wish, hosts: object) -> Iterator[str]:
    """What of a wish no stack has, whichever it is."""
    if not isinstance(wish.count, int) or wish.count < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        yield f"count must be a number of slices from 1 on, got {wish.count!r}"
    if not isinstance(wish.max_hours, int | float) or not 0 < wish.max_hours <= MOST_HOURS:  # pyright: ignore[reportUnnecessaryIsInstance]
        yield f"max_hours must be a number above 0 and at most {MOST_HOURS}, got {wish.max_hours!r}"
    for name, got, choices in (("priority", wish.priority, get_args(Priority)), ("hosts", hosts, get_args(Shown))):
        if got not in choices:
            yield f"{name} must be one of {', '.join(choices)}, got {got!r}"


def _decoration_error(function: object) -> str | None:
    """Why calls of what is decorated could not work, which would show on the hosts alone."""
    name = function_name(function)
    if isinstance(function, staticmethod | classmethod):
        kind = type(function).__name__  # pyright: ignore[reportUnknownArgumentType]
        return f"expected a function, got the {kind} {name}; put @multislice.run(...) below @{kind}"
    if not callable(function):
        return f"expected a function below @multislice.run(...), got {function!r}"
    if hasattr(function, "cache_clear"):
        return f"expected a function, got the cache of {name}; put @multislice.run(...) below it, to keep results here"
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return f"expected a function that returns a value, but {name} is async; have a plain one asyncio.run it"
    if inspect.isgeneratorfunction(function):
        return f"expected a function that returns a value, but {name} yields; have a plain one return list({name}(...))"
    return None
