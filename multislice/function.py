"""A function that runs on slices: the decorator, the ways to call it, and the way back to a call."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.observed.paths import JOBSETS
from infra.calls import spec_of
from infra.jobs import Priority
from multislice.call import Call, of_input
from multislice.errors import CallGone, Refused
from multislice.outcome import Outcome
from multislice.packing import pack
from multislice.place import Place, place
from multislice.project import Project
from multislice.submission import Wish, submit
from multislice.watching import Shown, cancel, tell, watched
from workloads.call.function import itself
from workloads.spec import CallSpec


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
        return watched(call, self._target.hosts).result()

    def start(self, *args: P.args, **kwargs: P.kwargs) -> Call:
        """Submit a call and do not wait for it.

        Raises:
            multislice.CallError: it cannot be made.
        """
        return self._submit(self._place(), args, kwargs)

    def map(self, inputs: Iterable[Any]) -> list[Outcome]:
        """Call once for each input, all of them through the queue, and wait; in the order of the inputs.

        One that fails keeps its error, and stops no other.

        Raises:
            multislice.CallError: one cannot be made; those before it are cancelled.
        """
        values, found = list(inputs), self._place()
        calls: list[Call] = []
        try:
            for value in values:
                calls.append(self._submit(found, (value,), {}))
            return [self._awaited(call, value) for call, value in zip(calls, values, strict=True)]
        except BaseException:
            cancel(calls)
            raise

    def _awaited(self, call: Call, value: Any) -> Outcome:
        return of_input(call.outcome(None, lambda status: tell(call, status)), value)

    def _place(self) -> Place:
        return place(self._target.stack, self._target.sandbox)

    def _submit(self, found: Place, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Call:
        packed = pack(self.function, arguments, named, Project(self._target.ships))
        return submit(packed, self._target.wish, found)

    def __reduce__(self) -> Any:
        return itself, (self.function,)


def run[**P, R](
    stack: str,
    slices: str,
    *,
    count: int = 1,
    team: str | None = None,
    priority: Priority = "normal",
    hosts: Shown = "leader",
    timeout: float | None = None,
    ships: Sequence[str | Path] = (),
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
        timeout: seconds that the function may take once it runs; unset, as long as it likes.
        ships: folders with modules of your project, which the image does not have.
        sandbox: folder of the sandbox that has the stack; unset, your own Pulumi.
    """
    if hosts not in ("leader", "all"):
        raise Refused(f"hosts must be 'leader' or 'all', got {hosts!r}")
    if timeout is not None and timeout <= 0:
        raise Refused(f"timeout must be seconds above 0, got {timeout}")
    wish = Wish(slices, count, team, priority, timeout)
    target = Target(stack, wish, hosts, tuple(ships), None if sandbox is None else Path(sandbox))

    def decorated(function: Callable[P, R]) -> Function[P, R]:
        return Function(function, target)

    return decorated


def attach(call: str, *, stack: str, sandbox: str | Path | None = None) -> Call:
    """The call of that name, from any process or machine that can ask the stack.

    Raises:
        multislice.CallGone: there is none in any namespace of the stack's teams.
        multislice.NoSuchStack: the stack cannot be asked.
    """
    found = place(stack, None if sandbox is None else Path(sandbox))
    for namespace in sorted(set(found.settings.namespaces.values())):
        if (spec := _spec(found, namespace, call)) is not None:
            return Call(call, namespace, found, spec)
    raise CallGone(f"stack {stack} has no call {call!r}; it was cancelled, or ended more than a day ago")


def _spec(found: Place, namespace: str, call: str) -> CallSpec | None:
    jobset = found.api.find(f"{JOBSETS.format(namespace)}/{call}")
    return None if jobset is None else spec_of(jobset)
