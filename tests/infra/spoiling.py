"""Changes that spoil a valid stack file, and the errors that follow."""

from collections.abc import Callable, Mapping

from infra.stack.settings.errors import SettingsError
from infra.stack.settings.read import parse
from tests.infra.recording import Values

type Spoil = Callable[[Values], object]


def put(path: str, value: object) -> Spoil:
    """Set the value at a path, whose sections may be absent."""
    *parents, last = path.split(".")

    def spoil(values: Values) -> None:
        for parent in parents:
            values = values.setdefault(parent, {})
        values[last] = value

    return spoil


def remove(path: str) -> Spoil:
    """Remove the key at a path, and return its value."""
    *parents, last = path.split(".")

    def spoil(values: Values) -> object:
        for parent in parents:
            values = values[parent]
        return values.pop(last)

    return spoil


def edited(values: Values, changes: Mapping[str, object]) -> Values:
    """Set the values at these paths, and return all values."""
    for path, value in changes.items():
        put(path, value)(values)
    return values


def errors_of(values: Values, read: Callable[[Values], object] = parse) -> dict[str, str]:
    """Return the text of the errors of each setting, one a line; nothing if the stack file, or what `read` takes, is
    valid."""
    texts: dict[str, list[str]] = {}
    try:
        read(values)
    except SettingsError as error:
        for found in error.errors:
            texts.setdefault(found.path, []).append(str(found))
    return {path: "\n".join(lines) for path, lines in texts.items()}
