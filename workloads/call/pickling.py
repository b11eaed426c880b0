"""Pickling for a call: code by value, and every refusal by the name of what is at fault.

Owns what no call can carry, whichever way it goes. What the desk refuses besides is up to it. Does not import JAX:
who has no JAX array has none to refuse.
"""

import io
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from types import AsyncGeneratorType, CoroutineType, FunctionType, GeneratorType
from typing import Any, Protocol, cast

import cloudpickle

from workloads.call import parcel

type Refusal = Callable[[object], str | None]
"""Why an object cannot travel, and what to do instead; None: it may."""
type Reduce = Callable[[object], Any]
"""What stands for an object, in pickle's terms; NotImplemented: pickle's own way."""

_LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Event, threading.Semaphore)
_ONGOING = (GeneratorType, CoroutineType, AsyncGeneratorType)
_DEEPEST = 8
_MOST_CHILDREN = 10_000


class Unpicklable(ValueError):
    """Something cannot travel; the message names it."""


class TooLarge(Exception):
    """More than a call may carry."""


class _Refused(Exception):
    """An object that must not travel; the message says why."""


class _File(Protocol):
    def write(self, content: Any) -> int: ...


class _Counted:
    """A file that keeps nothing: of an object that fills half of the memory there shall be no second copy."""

    size_bytes = 0

    def write(self, content: Any) -> int:
        written = memoryview(content).nbytes
        self.size_bytes += written
        return written


class _Bounded(io.BytesIO):
    """A file that holds what a call may carry."""

    def write(self, content: Any) -> int:
        if self.tell() + memoryview(content).nbytes > parcel.MOST_BYTES:
            raise TooLarge
        return super().write(content)


class _Pickler(cloudpickle.Pickler):
    def __init__(self, file: _File, refusal: Refusal, reduce: Reduce) -> None:
        super().__init__(file)
        self._refusal = refusal
        self._reduce = reduce

    def reducer_override(self, obj: object) -> Any:
        if why := self._refusal(obj):
            raise _Refused(why)
        reduced = self._reduce(obj)
        return super().reducer_override(obj) if reduced is NotImplemented else reduced


def own_way(_: object) -> Any:
    """Leave every object to pickle."""
    return NotImplemented


def pickled(named: Mapping[str, object], value: object, refusal: Refusal, reduce: Reduce = own_way) -> bytes:
    """`value` as bytes; `named` are its parts by what people call them.

    Raises:
        Unpicklable: it holds what cannot travel; names every such part.
        TooLarge: it is larger than anything that travels may be.
    """
    file = _Bounded()
    try:
        _Pickler(file, refusal, reduce).dump(value)
        return file.getvalue()
    except TooLarge:
        raise
    except RecursionError as error:
        raise Unpicklable(f"{', '.join(named)}: nested too deep to be pickled ({error})") from None
    except Exception as error:  # noqa: BLE001 - objects raise what they like when they are pickled
        faults = [fault for name, part in named.items() for fault in _faults(name, part, refusal, reduce, _DEEPEST)]
        raise Unpicklable("\n".join(dict.fromkeys(faults)) or f"cannot be pickled: {error}") from None


def size_bytes(value: object, refusal: Refusal, reduce: Reduce = own_way) -> int:
    """Pickled bytes of what can travel, however large it is."""
    file = _Counted()
    _Pickler(file, refusal, reduce).dump(value)
    return file.size_bytes


def sizes(named: Mapping[str, object], refusal: Refusal, reduce: Reduce = own_way) -> list[tuple[int, str]]:
    """Pickled bytes of each part, the largest first."""
    return sorted(((size_bytes(part, refusal, reduce), name) for name, part in named.items()), reverse=True)


def too_large(what: str, size_bytes: int, most_bytes: int, largest: Sequence[tuple[int, str]], advice: str) -> str:
    """The message that refuses what is larger than it may be."""
    told = f"; the largest is {largest[0][1]} with {_mib(largest[0][0])}" if largest else ""
    return f"expected at most {_mib(most_bytes)} of {what}, got {_mib(size_bytes)}{told}. {advice}"


def never_travels(value: object) -> str | None:
    """Why an object can go neither to the hosts nor back."""
    if isinstance(value, io.IOBase) and not isinstance(value, (io.BytesIO, io.StringIO)):
        return f"an open file ({getattr(value, 'name', 'without a name')}); give its path or its content instead"
    if isinstance(value, _LOCKS):
        return "a lock, which stays with its process; make one where it is needed"
    if isinstance(value, _ONGOING):
        return f"a {type(value).__name__}, which stays with its process; give a list of what comes out of it instead"
    return None


def is_jax_array(value: object) -> bool:
    """Whether JAX is loaded and `value` is one of its arrays."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, jax.Array)


def _faults(name: str, value: object, refusal: Refusal, reduce: Reduce, depth: int) -> Iterator[str]:
    """The innermost parts of `value` that cannot travel, by name."""
    if why := refusal(value):
        yield f"{name} is {why}"
        return
    try:
        size_bytes(value, refusal, reduce)
    except Exception as error:  # noqa: BLE001 - as above
        inside = [
            fault
            for child_name, child in (_children(name, value) if depth else ())
            for fault in _faults(child_name, child, refusal, reduce, depth - 1)
        ]
        yield from inside or [_fault(name, error)]


def _fault(name: str, error: Exception) -> str:
    if isinstance(error, _Refused):
        return f"{name} holds {error}"
    return f"{name}: {str(error) or type(error).__name__}; give what it is made from, and make it where it is needed"


def _children(name: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for key, entry in list(cast(Mapping[object, object], value).items())[:_MOST_CHILDREN]:
            yield f"{name}[{key!r}]", entry
    elif isinstance(value, (list, tuple, Set)):
        for index, entry in enumerate(list(cast(Sequence[object], value))[:_MOST_CHILDREN]):
            yield f"{name}[{index}]", entry
    elif isinstance(value, FunctionType):
        for variable, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            with suppress(ValueError):  # not set yet
                yield f"{name}'s variable `{variable}`", cell.cell_contents
    else:
        for attribute, entry in (getattr(value, "__dict__", None) or {}).items() if not isinstance(value, type) else ():
            yield f"{name}.{attribute}", entry


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / parcel.BYTES_PER_MIB:.1f} MiB"
