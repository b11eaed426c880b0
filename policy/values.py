"""Values that a preview does not know yet, such as the address of an account that is still to be made.

Owns the mark that stands for one. A rule that touches it ends there, and Pulumi says that the rule
could not run; `up` asks every rule again, with what is known by then, before it makes the resource.
"""

from typing import Any, NoReturn


class NotKnownYetError(Exception):
    """A rule touched a value that a preview does not know."""

    def __init__(self, path: tuple[str, ...]) -> None:
        super().__init__(f"{'.'.join(path)} is not known yet")
        self.path = path


class Unknown:
    """Stands where a value will be; whether there will be one can be asked, what it is cannot."""

    def __init__(self, path: tuple[str, ...]) -> None:
        self._path = path

    def _touched(self, *_: object) -> NoReturn:
        raise NotKnownYetError(self._path)

    __bool__: Any = _touched
    __contains__: Any = _touched
    __eq__: Any = _touched
    __float__: Any = _touched
    __ge__: Any = _touched
    __getattr__: Any = _touched
    __getitem__: Any = _touched
    __gt__: Any = _touched
    __hash__: Any = _touched
    __int__: Any = _touched
    __iter__: Any = _touched
    __le__: Any = _touched
    __len__: Any = _touched
    __lt__: Any = _touched
    __str__: Any = _touched


def is_known(value: object) -> bool:
    """Whether a rule may touch the value."""
    return not isinstance(value, Unknown)
