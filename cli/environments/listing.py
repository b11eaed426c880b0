"""`multislice env list`: the environments that the backend knows, on whatever machine they were made.

Owns what is told of each. A stack that cannot be read is told with the reason, never left out.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from rich.console import Console

from cli.answer import Form, write
from cli.environments.backend import Backend, BackendError
from cli.environments.files import Files
from cli.environments.known import Known, look
from cli.halt import Halt
from infra.cost import BILL_OUTPUT, Bill, read_bill
from infra.review.table import UNKNOWN, Table
from workloads.spec import Spec

SOME_UNREADABLE, SOME_EXPIRED = 1, 2
"""Exit statuses: not every stack could be read; of `--expired`, some have."""

_MINUTE = timedelta(minutes=1)


class Listed(Spec):
    """An environment, or a stack that may be one."""

    name: str
    source: str | None
    expires_at: str | None
    """Both None: it cannot be read, and `trouble` says why."""
    expired: bool
    age_seconds: int | None
    """Since its first update; None before that."""
    usd_per_hour: float | None
    """Of its chips, when all are there that it may ask for. None: it exported no bill."""
    unpriced: tuple[str, ...]
    """Slice groups that come on top, at a price that is not known."""
    file: bool
    """Whether its stack file is here."""
    trouble: str | None


class Listing(Spec):
    """All that are asked for."""

    environments: tuple[Listed, ...]


def listing(backend: Backend, files: Files, now: datetime, *, expired: bool) -> Listing:
    """The environments of the backend, those that expire first before the others; or the expired ones alone.

    Raises:
        Halt: the backend does not say which stacks it has.
    """
    try:
        known = [look(name, backend, files) for name in backend.names()]
    except BackendError as error:
        raise Halt(str(error)) from None
    found = [_listed(stack, backend, files, now) for stack in known if not stack.permanent]
    wanted = [each for each in found if each.expired or each.source is None or not expired]
    return Listing(environments=tuple(sorted(wanted, key=lambda each: (each.expires_at or "", each.name))))


def show(backend: Backend, files: Files, now: datetime, form: Form, console: Console, *, expired: bool) -> int:
    """Print them; the exit status."""
    found = listing(backend, files, now, expired=expired)
    write(found.model_dump_json(indent=1), [_table(found.environments)], form, console)
    if any(each.source is None for each in found.environments):
        return SOME_UNREADABLE
    return SOME_EXPIRED if expired and found.environments else 0


def _listed(stack: Known, backend: Backend, files: Files, now: datetime) -> Listed:
    environment, trouble = stack.environment, stack.trouble
    bill: Bill | None = None
    try:
        bill = read_bill(backend.outputs(stack.name).get(BILL_OUTPUT)) if environment and stack.updates else None
    except BackendError as error:
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
        columns=("name", "from", "expires", "age", "$/h at most", "file"),
        rows=[_row(each) for each in found],
        notes=[f"{each.name}: {each.trouble}" for each in found if each.trouble],
    )


def _row(each: Listed) -> tuple[str, ...]:
    return (
        each.name,
        each.source or UNKNOWN,
        f"{each.expires_at or UNKNOWN}{' (expired)' if each.expired else ''}",
        UNKNOWN if each.age_seconds is None else _age(timedelta(seconds=each.age_seconds)),
        UNKNOWN if each.usd_per_hour is None else f"{each.usd_per_hour:.2f}{' and more' if each.unpriced else ''}",
        "here" if each.file else "not here",
    )


def _age(time: timedelta) -> str:
    hours, minutes = divmod(time // _MINUTE, 60)
    return f"{hours} h {minutes} min"
