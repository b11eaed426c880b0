"""Why a host ended, where it was not the function: the failure records that hosts leave in the bucket."""

import json
from typing import Any

from workloads.call.folder import CallFolder
from workloads.spec import ExitCode

_FOLDER = "failures"
_SHOWN_LINES = 40


def host_failure(folder: CallFolder) -> str | None:
    """The first failure that is a host's own, in words, with its stacks if it hung; None: no host says anything.

    The records are not sealed, and are shown alone.
    """
    read = (folder.read(name) for name in folder.names(_FOLDER))
    records: list[dict[str, Any]] = [json.loads(record) for record in read if record is not None]
    own = [record for record in records if not record["elsewhere"]] or records
    if not own:
        return None
    first = min(own, key=lambda record: record["time"])
    code = ExitCode(first["code"]).name if first["code"] in list(ExitCode) else first["code"]
    told = [f"host {first['host']} ended ({code}): {first['cause']}", *first["details"][:_SHOWN_LINES]]
    return "\n".join(told)
