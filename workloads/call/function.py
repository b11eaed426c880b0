"""Unpacks the function of a call on a host, calls it, and packs its result.

This module also prepares the function's surroundings: the folders that came with it, and a replacement for the package
`multislice`, because a host cannot make further calls.
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
"""The package that makes calls. The image does not contain it."""
OUTPUT_VARIABLE = "MULTISLICE_OUTPUT"
"""Environment variable with the folder for the function's files."""

_SHORT = reprlib.Repr(maxdict=100, maxlist=100, maxtuple=100, maxstring=1000, maxother=1000)


def itself[F: Callable[..., Any]](function: F) -> F:
    """Return the function unchanged, in place of decorators on a host."""
    return function


@dataclass(frozen=True)
class Function:
    """A function and its arguments, ready to be called."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]

    @classmethod
    def unpack(cls, parts: Mapping[str, bytes], output: str) -> Self:
        """Load the function from these parts, with the modules that it needs from the folders that came with it."""
        os.environ[OUTPUT_VARIABLE] = output
        # The image has no other backend. Keras reads this when it is imported, perhaps by a module of the call.
        os.environ.setdefault("KERAS_BACKEND", "jax")
        sys.modules[CALLER] = _stand_in()
        for file, text in json.loads(parts[TEXT]).items():
            # Without a modification time, linecache does not compare it with a file, which does not exist here.
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
            # sys.exit() with success is an early return. Any other code is a failure.
            if end.code in (None, 0):
                return None
            raise


class KerasOnAllHosts(MetaPathFinder):
    """Prepares Keras on its import to train one model on all hosts. See `workloads.call.keras_fit`."""

    def __init__(self, call: str) -> None:
        self._seed = zlib.crc32(call.encode())
        self._asks = False
        """Whether this finder is querying the other finders, which call this one again."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        """Find Keras through the other finders. All other modules are left to them."""
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


def pack_result(value: object) -> bytes:
    """Pickle what the function returned, with JAX arrays as NumPy arrays.

    Raises:
        Unpicklable: a part cannot be sent. The message names it and shows a shortened value.
    """
    try:
        return _pickle_result(value)
    except Unpicklable as fault:
        error = Unpicklable(f"the function returned, but its value cannot be sent back:\n{fault}")
        error.add_note(f"it returned {_SHORT.repr(value)}")
        raise error from None


def pack_exception(error: BaseException) -> bytes | None:
    """Pickle an exception without its traceback. `None` if it cannot be sent, or would end the receiving process."""
    if not isinstance(error, Exception):
        return None
    try:
        content = pickled({"the exception": error}, error, never_travels)
        # Some exceptions can be pickled but not unpickled, because their arguments differ from those of __init__.
        return content if isinstance(pickle.loads(content), Exception) else None
    except Exception:  # noqa: BLE001 - exceptions are objects of any kind
        return None


def presentable(error: BaseException) -> BaseException:
    """Return the exception, or a replacement if its text raises an error."""
    try:
        str(error)
    except Exception as fault:  # noqa: BLE001 - exceptions are objects of any kind
        replacement = RuntimeError(f"{type(error).__name__}, whose text is not available ({type(fault).__name__})")
        return replacement.with_traceback(error.__traceback__)
    return error


def own_traceback(error: BaseException) -> list[str]:
    """Return the lines of the traceback, beginning at the function."""
    trace = error.__traceback__
    while trace and trace.tb_next and trace.tb_frame.f_code.co_filename.startswith(os.path.dirname(__file__)):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace)).splitlines()


def _pickle_result(value: object) -> bytes:
    named = {"the result": value}
    try:
        return pickled(named, value, _refusal, _reduce)
    except TooLarge:
        parts = {f"result[{key!r}]": part for key, part in value.items()} if isinstance(value, dict) else named
        advice = f"Write it below os.environ[{OUTPUT_VARIABLE!r}] and return its path"
        total, largest = size_bytes(value, _refusal, _reduce), sizes(parts, _refusal, _reduce)[:1]
        raise Unpicklable(too_large("a result", total, parcel.MAX_BYTES, largest, advice)) from None


def _refusal(value: object) -> str | None:
    if is_jax_array(value) and not getattr(value, "is_fully_addressable", True):
        if getattr(value, "is_fully_replicated", False):
            return None
        return (
            "a JAX array of which this host has only a part; gather it on all hosts with"
            " jax.experimental.multihost_utils.process_allgather(x, tiled=True)"
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
    """Replaces the package `multislice` on a host, so that modules of the call can import it."""

    def __getattr__(self, name: str) -> type[Exception]:
        # These names are errors to catch and types in annotations. Nothing on a host creates them.
        if name.startswith("_"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r} on a host")
        found = type(name, (Exception,), {"__module__": CALLER})
        setattr(self, name, found)
        return found


def _stand_in() -> ModuleType:
    def refuse(*_: object, **__: object) -> Any:
        raise RuntimeError("a host cannot make calls; make this call from the machine that you called from")

    module = _StandIn(CALLER, "On a host a decorated function is the function itself.")
    from workloads.call.checkpoints import checkpoint_folder, resumable

    of_hosts = {"checkpoint_folder": checkpoint_folder, "resumable": resumable}
    vars(module).update(run=lambda *_, **__: itself, attach=refuse, forget=refuse, **of_hosts)
    return module
