"""`multislice env list` lists the environments in the backend, regardless of the machine that created them.

The section `environment` comes from the configuration of a stack's last update, which the backend keeps even if the
update failed. It comes from the stack file only if the stack was never updated. A stack that cannot be read is listed
with the reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pydantic import ValidationError
from rich.console import Console

from cli.answer import Form, as_json, waiting, write
from cli.environments.backend import Backend, Update
from cli.environments.files import Files, environment_in
from infra.cost import BILL_OUTPUT, Bill, read_bill
from infra.money import HOURS_PER_DAY
from infra.review.table import UNKNOWN, Table
from infra.settings.schema import Environment
from infra.stacks import StacksError
from workloads.spec import Spec

SOME_UNREADABLE, SOME_EXPIRED = 1, 2
"""Exit statuses: a stack could not be read; with `--expired`, some environments have expired."""


@dataclass(frozen=True)
class Known:
    """A stack of the backend."""

    name: str
    environment: Environment | None
    """Section `environment` of the stack. None: it is permanent, or `trouble` says why that is unknown."""
    updates: Sequence[Update] = ()
    """Updates of the stack, newest first."""
    trouble: str | None = None


def look(name: str, backend: Backend, files: Files) -> Known:
    """Read what the backend knows about a stack, and why the rest is unknown."""
    try:
        updates = backend.updates(name)
    except StacksError as error:
        return Known(name, None, trouble=f"its updates cannot be read: {error}")
    try:
        if updates:
            last = updates[0]
            words = "is in progress or was interrupted" if last.result == "in-progress" else last.result
            trouble = None if last.result == "succeeded" else f"its last {last.kind} {words}"
            environment = environment_in(last.config)
            if environment and files.stack(name).exists() and files.environment(name) is None:
                return Known(
                    name,
                    None,
                    updates,
                    "its stack file has no section environment, so it should be permanent, but no update has stored"
                    f" that yet; run `{backend.command('up', name)}` to keep it, or remove the file to destroy it",
                )
            return Known(name, environment, updates, trouble if environment else None)
        environment = files.environment(name)
    except ValidationError as error:
        return Known(name, None, trouble=f"its section environment cannot be read: {error.errors()[0]['msg']}")
    if environment is None and not files.stack(name).exists():
        return Known(name, None, trouble="it was never deployed and has no stack file here, so it cannot be read")
    return Known(name, environment, trouble="it was never deployed" if environment else None)


class Listed(Spec):
    """An environment, or a stack that may be one."""

    name: str
    source: str | None
    expires_at: str | None
    """End of the environment. `source` and `expires_at` are None if the stack cannot be read; `trouble` says why."""
    expired: bool
    age_seconds: int | None
    """Seconds since its first update. None: it was never updated."""
    usd_per_hour: float | None
    """Price of all chips that it can use, in dollars per hour. None: the stack has no output `bill`."""
    unpriced: tuple[str, ...]
    """Slice groups whose price is unknown, so that `usd_per_hour` does not include them."""
    file: bool
    """Whether its stack file is in this checkout."""
    trouble: str | None


def listing(backend: Backend, files: Files, now: datetime, *, expired: bool) -> list[Listed]:
    """Return the environments of the backend, or only the expired ones, ordered by expiry."""
    known = [look(name, backend, files) for name in backend.names()]
    found = [_listed(stack, backend, files, now) for stack in known if stack.environment or stack.trouble]
    wanted = [each for each in found if each.expired or each.source is None or not expired]
    return sorted(wanted, key=lambda each: (each.expires_at or "", each.name))


def show(backend: Backend, files: Files, now: datetime, form: Form, console: Console, *, expired: bool) -> int:
    """Print the environments and return the exit status."""
    with waiting("reading the stacks of the backend"):
        found = listing(backend, files, now, expired=expired)
    write(as_json({"environments": found}), [_table(found)], form, console)
    if any(each.source is None for each in found):
        return SOME_UNREADABLE
    return SOME_EXPIRED if expired and found else 0


def _listed(stack: Known, backend: Backend, files: Files, now: datetime) -> Listed:
    environment, trouble = stack.environment, stack.trouble
    bill: Bill | None = None
    try:
        bill = read_bill(backend.outputs(stack.name).get(BILL_OUTPUT)) if environment and stack.updates else None
    except StacksError as error:
        trouble = f"its outputs cannot be read: {error}"
    return Listed(
        name=stack.name,
        source=environment.source if environment else None,
        expires_at=environment.expires_at if environment else None,
        expired=environment is not None and environment.end <= now,
        age_seconds=round((now - stack.updates[-1].began).total_seconds()) if stack.updates else None,
        usd_per_hour=bill.at_most.usd_per_hour if bill else None,
        unpriced=bill.at_most.unknown if bill else (),
        file=files.stack(stack.name).exists(),
        trouble=trouble,
    )


def _table(found: Sequence[Listed]) -> Table:
    over = sum(each.expired for each in found)
    return Table(
        title="Environments",
        verdict=f"{len(found)}, of which {over} expired" if found else "none",
        state="bad" if any(each.source is None for each in found) else "notable" if over else "good",
        columns=("name", "from", "expires", "age", "$/h at most", "$/day", "file"),
        rows=[_row(each) for each in found],
        notes=[f"{each.name}: {each.trouble}" for each in found if each.trouble],
    )


def _row(each: Listed) -> tuple[str, ...]:
    minutes = None if each.age_seconds is None else each.age_seconds // 60
    return (
        each.name,
        each.source or UNKNOWN,
        f"{each.expires_at or UNKNOWN}{' (expired)' if each.expired else ''}",
        UNKNOWN if minutes is None else f"{minutes // 60} h {minutes % 60} min",
        *(_price(each, hours, decimals) for hours, decimals in ((1, 2), (HOURS_PER_DAY, 0))),
        "here" if each.file else "not here",
    )


def _price(each: Listed, hours: int, decimals: int) -> str:
    if each.usd_per_hour is None:
        return UNKNOWN
    return f"{each.usd_per_hour * hours:.{decimals}f}{' and more' if each.unpriced else ''}"
