"""Pickles values for a call, with code by value, and names what functions use and every part that cannot be sent.

This module refuses what can be sent in neither direction. The calling side refuses more. JAX is not imported here,
because a program without JAX has no JAX arrays.
"""

import dis
import functools
import inspect
import io
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from pkgutil import resolve_name
from types import AsyncGeneratorType, CodeType, CoroutineType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any, Protocol, cast

import cloudpickle

from workloads.call import parcel

type Refusal = Callable[[object], str | None]
"""Returns why an object cannot be sent and what to do instead, or `None` if it can."""
type Reduce = Callable[[object], Any]
"""Returns the reduction of an object, as in `pickle`, or `NotImplemented` for pickle's default."""

_USES = frozenset(("LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL"))
_LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Event, threading.Semaphore)
_ONGOING = (GeneratorType, CoroutineType, AsyncGeneratorType)
_DEEPEST = 8
_MAX_CHILDREN = 10_000


class Unpicklable(ValueError):
    """Raised when a part cannot be sent. The message names it."""


class TooLarge(Exception):
    """Raised when pickled data is above the size limit of a call."""


class _Refused(Exception):
    """Raised for an object that must not be sent. The message says why."""


class _File(Protocol):
    def write(self, content: Any) -> int: ...


class _Counted:
    """A file that only counts bytes, so that an object that fills half of the memory is not copied."""

    size_bytes = 0

    def write(self, content: Any) -> int:
        written = memoryview(content).nbytes
        self.size_bytes += written
        return written


class _Bounded(io.BytesIO):
    """A file that is limited to the size of a call."""

    def write(self, content: Any) -> int:
        if self.tell() + memoryview(content).nbytes > parcel.MAX_BYTES:
            raise TooLarge
        return super().write(content)


_OUTSIDE_THE_IMAGE = __name__.removesuffix("workloads.call.pickling")
"""Package that has `workloads`, with a dot: in the installed package `tpu_multislice.`, otherwise nothing."""
_OF_THE_IMAGE = "workloads."


def _name_in_the_image(value: object) -> str | None:
    """Return the name by which hosts import a module, class or function of `workloads`, for `pkgutil.resolve_name`."""
    if isinstance(value, ModuleType):
        name = value.__name__
    elif isinstance(value, FunctionType | type) and "<locals>" not in value.__qualname__:
        name = f"{value.__module__}:{value.__qualname__}"
    else:
        return None
    is_of_image = name.startswith(f"{_OUTSIDE_THE_IMAGE}{_OF_THE_IMAGE}")
    return name.removeprefix(_OUTSIDE_THE_IMAGE) if is_of_image else None


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str) -> Any:
        outside = _OUTSIDE_THE_IMAGE if module_name.startswith(_OF_THE_IMAGE) else ""
        return super().find_class(f"{outside}{module_name}", global_name)


def unpickled(content: bytes) -> Any:
    """Load what a host pickled, whose modules of `workloads` may have other names than here."""
    return _Unpickler(io.BytesIO(content)).load()


class _Pickler(cloudpickle.Pickler):
    def __init__(self, file: _File, refusal: Refusal, reduce: Reduce) -> None:
        super().__init__(file)
        self._refusal = refusal
        self._reduce = reduce

    def reducer_override(self, obj: object) -> Any:
        if why := self._refusal(obj):
            raise _Refused(why)
        if _OUTSIDE_THE_IMAGE and (name := _name_in_the_image(obj)):
            return resolve_name, (name,)
        reduced = self._reduce(obj)
        return super().reducer_override(obj) if reduced is NotImplemented else reduced


def own_way(_: object) -> Any:
    """Use pickle's default for every object."""
    return NotImplemented


def pickled(named: Mapping[str, object], value: object, refusal: Refusal, reduce: Reduce = own_way) -> bytes:
    """Pickle `value`. `named` has its parts by their names for messages.

    Raises:
        Unpicklable: parts of it cannot be sent. The message names each of them.
        TooLarge: it is above the size limit of a call.
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
    """Return the pickled size of a value in bytes, without a limit."""
    file = _Counted()
    _Pickler(file, refusal, reduce).dump(value)
    return file.size_bytes


def sizes(named: Mapping[str, object], refusal: Refusal, reduce: Reduce = own_way) -> list[tuple[int, str]]:
    """Return the pickled size of each part in bytes, the largest first."""
    return sorted(((size_bytes(part, refusal, reduce), name) for name, part in named.items()), reverse=True)


def too_large(what: str, size_bytes: int, most_bytes: int, largest: Sequence[tuple[int, str]], advice: str) -> str:
    """Return the error message for a value above the size limit."""
    part = f"; the largest is {largest[0][1]} with {_mib(largest[0][0])}" if largest else ""
    return f"expected at most {_mib(most_bytes)} of {what}, got {_mib(size_bytes)}{part}. {advice}"


def never_travels(value: object) -> str | None:
    """Return why an object can be sent neither to the hosts nor back. `None` if it can."""
    if isinstance(value, io.IOBase) and not isinstance(value, (io.BytesIO, io.StringIO)):
        return f"an open file ({getattr(value, 'name', 'without a name')}); give its path or its content instead"
    if isinstance(value, _LOCKS):
        return "a lock, which belongs to its process; create it where it is needed"
    if isinstance(value, _ONGOING):
        return f"a {type(value).__name__}, which belongs to its process; give a list of its items instead"
    return None


def is_jax_array(value: object) -> bool:
    """Whether JAX is loaded and `value` is one of its arrays."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, jax.Array)


def plain(value: object) -> object:
    """Return the function without partial arguments, bindings and wrappers. Other objects are returned unchanged."""
    while isinstance(value, functools.partial | MethodType):
        value = value.func if isinstance(value, functools.partial) else value.__func__  # pyright: ignore
    return inspect.unwrap(cast(Callable[..., Any], value)) if callable(value) else value  # pyright: ignore


def used_globals(function: FunctionType) -> dict[str, object]:
    """Return the global variables that the function and its inner functions use."""
    variables = function.__globals__
    return {name: variables[name] for name in sorted(_global_names(function.__code__) & variables.keys())}


def closure(function: FunctionType) -> dict[str, object]:
    """Return the variables of the enclosing functions that the function uses."""
    found: dict[str, object] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        # A variable that is not set yet has an empty cell.
        with suppress(ValueError):
            found[name] = cell.cell_contents
    return found


def _global_names(code: CodeType) -> set[str]:
    used = {str(step.argval) for step in dis.get_instructions(code) if step.opname in _USES}
    return used.union(*(_global_names(constant) for constant in code.co_consts if isinstance(constant, CodeType)))


def _faults(name: str, value: object, refusal: Refusal, reduce: Reduce, depth: int) -> Iterator[str]:
    """Yield a message for each innermost part of `value` that cannot be sent."""
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
        why = (
            f"{name}: {str(error) or type(error).__name__}; send what it is made from, and create it where it is needed"
        )
        yield from inside or [f"{name} holds {error}" if isinstance(error, _Refused) else why]


def _children(name: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for key, entry in list(cast(Mapping[object, object], value).items())[:_MAX_CHILDREN]:
            yield f"{name}[{key!r}]", entry
    elif isinstance(value, (list, tuple, Set)):
        for index, entry in enumerate(list(cast(Sequence[object], value))[:_MAX_CHILDREN]):
            yield f"{name}[{index}]", entry
    elif isinstance(value, FunctionType):
        for variable, entry in closure(value).items():
            yield f"{name}'s variable `{variable}`", entry
    else:
        for attribute, entry in (getattr(value, "__dict__", None) or {}).items() if not isinstance(value, type) else ():
            yield f"{name}.{attribute}", entry


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / parcel.BYTES_PER_MIB:.1f} MiB"
