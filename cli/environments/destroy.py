"""`multislice env destroy` destroys one environment, or all expired ones.

It destroys the resources, then the stack, then its files. It continues where an earlier attempt stopped. It does not
need the stack file, because the backend has its content. It never changes a permanent stack.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from pydantic import ValidationError
from rich.console import Console

from cli.answer import Form, Halt, as_json, write
from cli.environments.backend import Backend
from cli.environments.files import Files
from cli.environments.listing import listing, look
from infra.review.table import Table
from infra.stacks import StacksError
from workloads.spec import Spec

_MOST_LISTED = 5
_PERMANENT = "expected an environment, got the permanent stack {}; destroy it with `{}`"


class Destroyed(Spec):
    """Result for one environment."""

    name: str
    result: Literal["destroyed", "absent", "failed"]
    """`absent`: the environment did not exist."""
    remaining: tuple[str, ...] = ()
    message: str = ""


def destroy(name: str | None, backend: Backend, files: Files, now: datetime, form: Form, console: Console) -> int:
    """Destroy the environment `name`, or all expired ones if it is None. Return 1 if any remains, else 0."""
    expired = listing(backend, files, now, expired=True) if name is None else ()
    done = [end(each, backend, files) for each in ([each.name for each in expired] if name is None else [name])]
    write(as_json({"environments": done}), [_table(done)], form, console)
    return 1 if any(each.result == "failed" for each in done) else 0


def end(name: str, backend: Backend, files: Files) -> Destroyed:
    """Destroy one environment and remove its stack and files."""
    try:
        if name in backend.names():
            return _end_stack(name, backend, files)
        if not files.stack(name).exists():
            return Destroyed(name=name, result="absent")
        if files.environment(name) is None:
            raise Halt(_PERMANENT.format(name, backend.command("down", name)))
    except ValidationError as error:
        message = f"the section environment of {files.stack(name)} cannot be read: {error.errors()[0]['msg']}"
        return Destroyed(name=name, result="failed", message=message)
    except (StacksError, Halt) as error:
        return Destroyed(name=name, result="failed", message=str(error))
    files.remove(name)
    return Destroyed(name=name, result="destroyed", message="only its files: it was never deployed")


def _end_stack(name: str, backend: Backend, files: Files) -> Destroyed:
    known, message = look(name, backend, files), ""
    if known.environment is None:
        raise Halt(known.trouble or _PERMANENT.format(name, backend.command("down", name)))
    if backend.resources(name):
        if not files.stack(name).exists():
            backend.restore(name)
        try:
            backend.destroy(name)
        except StacksError as error:
            message = str(error)
    remaining = tuple(backend.resources(name))
    if remaining and not message:
        message = f"the stack's state still has these resources; list them with pulumi stack export --stack {name}"
    if message:
        return Destroyed(name=name, result="failed", remaining=remaining, message=message)
    backend.remove(name)
    files.remove(name)
    return Destroyed(name=name, result="destroyed")


def _table(done: Sequence[Destroyed]) -> Table:
    failed = [each for each in done if each.result == "failed"]
    gone = sum(each.result == "destroyed" for each in done)
    return Table(
        title="Environments",
        verdict=f"{gone} destroyed, {len(failed)} failed" if done else "none has expired",
        state="bad" if failed else "good",
        columns=("name", "result", "remaining"),
        rows=[(each.name, each.result, _remaining(each.remaining)) for each in done],
        notes=[f"{each.name}: {each.message}" for each in done if each.message],
    )


def _remaining(resources: Sequence[str]) -> str:
    more = f" and {len(resources) - _MOST_LISTED} more" if len(resources) > _MOST_LISTED else ""
    return f"{', '.join(resources[:_MOST_LISTED])}{more}" or "nothing"
