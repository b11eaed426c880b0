"""One change each that spoils a valid stack file."""

from collections.abc import Callable

from tests.infra.recording import Values

type Spoil = Callable[[Values], object]


def put(path: str, value: object) -> Spoil:
    """Set the value at a path."""
    *parents, last = path.split(".")

    def spoil(values: Values) -> None:
        for parent in parents:
            values = values[parent]
        values[last] = value

    return spoil


def remove(path: str) -> Spoil:
    """Remove the key at a path."""
    *parents, last = path.split(".")

    def spoil(values: Values) -> None:
        for parent in parents:
            values = values[parent]
        del values[last]

    return spoil
