"""Why a host ended, where it was not the function: the failure records that hosts leave in the bucket."""

from contextlib import suppress

from pydantic import BaseModel, ValidationError

from workloads.call.folder import CallFolder, Damaged
from workloads.spec import ExitCode, cause_order
from workloads.terminal import inert

_FOLDER = "failures"
_SHOWN_LINES = 40
_MOST_RECORDS, _MOST_RECORD_BYTES = 10_000, 1 << 20


def host_failure(folder: CallFolder) -> str | None:
    """The first failure that is a host's own, in words, with its stacks if it hung; None: no host says anything.

    The records are not sealed, and are shown alone. What is no record is passed over.
    """
    names = sorted(folder.names(_FOLDER))[:_MOST_RECORDS]
    records = [record for name in names if (record := _record(folder, name))]
    own = [record for record in records if not record.elsewhere] or records
    if not own:
        return None
    first = min(own, key=lambda record: cause_order(record.code, record.time))
    code = ExitCode(first.code).name if first.code in list(ExitCode) else first.code
    return inert("\n".join([f"host {first.host} ended ({code}): {first.cause}", *first.details[:_SHOWN_LINES]]))


class _Record(BaseModel):
    """What a host says of its end, as `workloads.training.ending` writes it."""

    host: str
    code: int
    cause: str
    details: list[str]
    time: float
    elsewhere: bool


def _record(folder: CallFolder, name: str) -> _Record | None:
    with suppress(ValidationError, Damaged):
        content = folder.read(name, _MOST_RECORD_BYTES)
        return None if content is None else _Record.model_validate_json(content)
    return None
