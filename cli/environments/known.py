"""What the backend knows of a stack as an environment.

Owns where that is looked up: the configuration of the stack's last update, which is there for one that failed as well
and on machines that never had its file. Only a stack that was never updated is known by its file alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from cli.environments.backend import Backend, BackendError, Update
from cli.environments.files import Files, environment_in
from infra.settings.schema import Environment

_KEPT = (
    "its file here has no section environment, so it is to stay, but no update has said so yet: bring it up with"
    " pulumi up; or, to destroy it, remove that file"
)


@dataclass(frozen=True)
class Known:
    """A stack of the backend."""

    name: str
    environment: Environment | None
    """None: it stays, or `trouble` says why it is not known whether it does."""
    updates: Sequence[Update] = ()
    """The newest first."""
    trouble: str | None = None

    @property
    def permanent(self) -> bool:
        """Whether it surely is no environment."""
        return self.environment is None and self.trouble is None


def look(name: str, backend: Backend, files: Files) -> Known:
    """What is known of a stack; what cannot be found out is told in the answer."""
    try:
        updates = backend.updates(name)
    except BackendError as error:
        return Known(name, None, trouble=f"its updates cannot be read: {error}")
    try:
        if updates:
            last = updates[0]
            trouble = None if last.result == "succeeded" else f"its last {last.kind} {_words(last.result)}"
            environment = environment_in(last.config)
            if environment and files.stack(name).exists() and files.environment(name) is None:
                return Known(name, None, updates, _KEPT)
            return Known(name, environment, updates, trouble if environment else None)
        environment = files.environment(name)
    except ValidationError as error:
        return Known(name, None, trouble=f"its section environment cannot be read: {error.errors()[0]['msg']}")
    if environment is None and not files.stack(name).exists():
        return Known(name, None, trouble="it was never brought up and has no file here: nothing is known of it")
    return Known(name, environment, trouble="it was never brought up" if environment else None)


def _words(result: str) -> str:
    return "is in progress, or was cut off" if result == "in-progress" else result
