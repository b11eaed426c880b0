"""The files that a run leaves for commands, alerts and people: their names, types, writers and readers.

`events` has the names of events, `lines` the type of each line and file, `ledger` the writers, `reader` the readers.
Every line of `ledger/` and `steps/`, and every record in `failures/`, `current.json` and `manifest.json`, has the
number of its format. Format 1 had no number and other names of some events (`events.BY_CLASS`). Readers ignore keys
that they do not know, and read a newer format as far as they can.
"""

from collections.abc import Mapping
from typing import Any

FORMAT = 2
"""Number of the format that is written."""


def numbered(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a line or file with the number of its format."""
    return {"format": FORMAT, **facts}
