"""The function of a call on a host: unpacked, called, and what it gives back packed.

Owns what the function finds around it: the folders that came with it, and a stand-in for the package that people
call from, since a call from a host would be a call of a call.
"""

import importlib.util
import io
import json
import linecache
import os
import pickle
import reprlib
import sys
import tempfile
import traceback
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Self

from workloads.call import parcel
from workloads.call.folder import ARGUMENTS, FUNCTION, SOURCES, TEXT
from workloads.call.pickling import (
    TooLarge,
    Unpicklable,
    is_jax_array,
    never_travels,
    pickled,
    size_bytes,
    sizes,
    too_large,
)

CALLER = "multislice"
"""The package that people call from; the image does not have it."""
OUTPUT_VARIABLE = "MULTISLICE_OUTPUT"
"""Environment variable with the folder for what the function writes."""


_SHORT = reprlib.Repr(maxdict=100, maxlist=100, maxtuple=100, maxstring=1000, maxother=1000)


def itself[F: Callable[..., Any]](function: F) -> F:
    """What a decorated function is on a host."""
    return function


@dataclass(frozen=True)
class Function:
    """A function and its arguments, ready to be called."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]

    @classmethod
    def unpacked(cls, parts: Mapping[str, bytes], output: str) -> Self:
        """The function that these parts are. Imports what it needs of the folders that came with it."""
        os.environ[OUTPUT_VARIABLE] = output
        # The image has no other backend, and Keras asks when it is imported, by a module that was sent along perhaps.
        os.environ.setdefault("KERAS_BACKEND", "jax")
        sys.modules[CALLER] = _stand_in()
        for file, text in json.loads(parts[TEXT]).items():
            # Without a time of change it is never compared with a file, which is not here.
            linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        if sources := parts.get(SOURCES):
            folder = tempfile.mkdtemp(prefix="sources-")
            zipfile.ZipFile(io.BytesIO(sources)).extractall(folder)
            sys.path.insert(0, folder)
            os.chdir(folder)
        function = pickle.loads(parts[FUNCTION])
        arguments, named = pickle.loads(parts[ARGUMENTS])
        return cls(function, arguments, named)

    def __call__(self) -> Any:
        try:
            return self.function(*self.arguments, **self.named)
        except SystemExit as end:
            # An early return by the program's own way to end well; any other code is a failure.
            if end.code in (None, 0):
                return None
            raise


class KerasOnAllHosts(MetaPathFinder):
    """Prepares Keras, on its import, to train one model on all hosts. See `workloads.call.keras_fit`."""

    def __init__(self, call: str) -> None:
        self._seed = zlib.crc32(call.encode())
        self._asks = False
        """Whether this finder asks the others at the moment, which ask it in turn."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        """Let the other finders find Keras; any other module is theirs alone."""
        if fullname != "keras" or self._asks:
            return None
        self._asks = True
        try:
            found = importlib.util.find_spec(fullname)
        finally:
            self._asks = False
        if found and found.loader and os.environ["KERAS_BACKEND"] == "jax":
            found.loader.exec_module = partial(self._execute, found.loader.exec_module)
        return found

    def _execute(self, execute: Callable[[ModuleType], None], module: ModuleType) -> None:
        execute(module)
        from workloads.call.keras_fit import train_on_all_hosts

        train_on_all_hosts(self._seed)


def packed_result(value: object) -> bytes:
    """What the function returned, JAX arrays as NumPy ones.

    Raises:
        Unpicklable: it cannot travel; names what of it, and shows the value as far as a line does.
    """
    try:
        return _packed_result(value)
    except Unpicklable as fault:
        told = Unpicklable(f"the function returned, but its value cannot come back:\n{fault}")
        told.add_note(f"it returned {_SHORT.repr(value)}")
        raise told from None


def packed_exception(error: BaseException) -> bytes | None:
    """The exception without its traceback; None if it cannot travel, or would end the process that it comes to."""
    if not isinstance(error, Exception):
        return None
    try:
        content = pickled({"the exception": error}, error, never_travels)
        # Some pickle well and cannot be made again, since their arguments are not those of their __init__.
        return content if isinstance(pickle.loads(content), Exception) else None
    except Exception:  # noqa: BLE001 - exceptions are objects of any kind
        return None


def presentable(error: BaseException) -> BaseException:
    """The exception, or one that stands for it if it cannot tell its own text."""
    try:
        str(error)
    except Exception as fault:  # noqa: BLE001 - exceptions are objects of any kind
        stands = RuntimeError(f"{type(error).__name__}, whose text cannot be had ({type(fault).__name__})")
        return stands.with_traceback(error.__traceback__)
    return error


def own_traceback(error: BaseException) -> list[str]:
    """Traceback from the function on, line by line."""
    trace = error.__traceback__
    while trace and trace.tb_next and trace.tb_frame.f_code.co_filename.startswith(os.path.dirname(__file__)):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace)).splitlines()


def _packed_result(value: object) -> bytes:
    named = {"the result": value}
    try:
        return pickled(named, value, _refusal, _reduce)
    except TooLarge:
        parts = {f"result[{key!r}]": part for key, part in value.items()} if isinstance(value, dict) else named
        advice = f"Write it below os.environ[{OUTPUT_VARIABLE!r}] and return its path"
        total, largest = size_bytes(value, _refusal, _reduce), sizes(parts, _refusal, _reduce)[:1]
        raise Unpicklable(too_large("a result", total, parcel.MOST_BYTES, largest, advice)) from None


def _refusal(value: object) -> str | None:
    if is_jax_array(value) and not getattr(value, "is_fully_addressable", True):
        replicated = getattr(value, "is_fully_replicated", False)
        return (
            None
            if replicated
            else (
                "a JAX array of which this host has a part alone; gather it with"
                " jax.experimental.multihost_utils.process_allgather(x, tiled=True), on all hosts"
            )
        )
    return never_travels(value)


def _reduce(value: object) -> Any:
    if not is_jax_array(value):
        return NotImplemented
    import numpy as np

    array: Any = value
    local = array if array.is_fully_addressable else array.addressable_data(0)
    return np.asarray(local).__reduce_ex__(pickle.HIGHEST_PROTOCOL)


class _StandIn(ModuleType):
    """The package that people call from, as far as modules that were sent along need it to be imported."""

    def __getattr__(self, name: str) -> type[Exception]:
        # Errors to be caught and types in annotations; nothing on a host makes any of them.
        if name.startswith("_"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r} on a host")
        found = type(name, (Exception,), {"__module__": CALLER})
        setattr(self, name, found)
        return found


def _stand_in() -> ModuleType:
    module = _StandIn(CALLER, "On a host a decorated function is the function itself.")

    def run(*_: object, **__: object) -> Callable[..., Any]:
        return itself

    def refuse(*_: object, **__: object) -> Any:
        raise RuntimeError("a host has no cluster to ask for calls; do it from where you called")

    vars(module).update(run=run, attach=refuse, forget=refuse)
    return module
