"""Functions on TPU slices: `@multislice.run(stack="dev", slices="trillium")` in front of a Python function.

See docs/functions.md. Everything that people use is named here.
"""

from multislice.call import Call, State, Status
from multislice.errors import (
    CallError,
    CallGone,
    FunctionRaised,
    HostFailed,
    HostTraceback,
    NoSuchStack,
    Refused,
    ResultDamaged,
)
from multislice.function import Function, attach, run
from multislice.outcome import Outcome

__all__ = [
    "Call",
    "CallError",
    "CallGone",
    "Function",
    "FunctionRaised",
    "HostFailed",
    "HostTraceback",
    "NoSuchStack",
    "Outcome",
    "Refused",
    "ResultDamaged",
    "State",
    "Status",
    "attach",
    "run",
]
