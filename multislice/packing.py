"""Packs a function and its arguments into the parts of a parcel, or refuses with the name of what cannot be sent.

The source lines of functions that are sent by value travel too, so that tracebacks on a host can show them. Other lines
of their files are not sent.
"""

import functools
import inspect
import io
import json
import linecache
import sys
import sysconfig
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NoReturn

from multislice.errors import Refused
from workloads.call import parcel
from workloads.call.folder import ARGUMENTS, FUNCTION, SOURCES, TEXT
from workloads.call.function import CALLER
from workloads.call.pickling import (
    TooLarge,
    Unpicklable,
    closure,
    is_jax_array,
    never_travels,
    pickled,
    plain,
    size_bytes,
    sizes,
    too_large,
    used_globals,
)

_IN_THE_IMAGE = ("multislice_run", "workloads")
_LEFT_OUT = frozenset(("__pycache__", "node_modules"))
_ENVIRONMENT = "pyvenv.cfg"
"""File in the root of every virtual environment."""
_SHIP_LESS = "Pass only folders with modules; put data in a bucket and pass its path"
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Time of all files in the zip file, so that equal folders give equal bytes. It is the earliest possible time."""


class Project:
    """Folders that are sent with a function's code."""

    def __init__(self, ships: Sequence[str | Path]) -> None:
        """Raise Refused if one of `ships` is not a folder."""
        self.ships = tuple(Path(folder).resolve() for folder in ships)
        if missing := [str(folder) for folder in self.ships if not folder.is_dir()]:
            raise Refused(f"expected ships to be folders, got {', '.join(missing)}; pass those with your modules")

    def refusal(self, value: object) -> str | None:
        """Return why an object cannot be sent to the hosts. None: it can be sent."""
        if is_jax_array(value):
            return "a JAX array, which is on this machine's devices; pass numpy.asarray(x), and convert it there"
        return never_travels(value) or self._module_refusal(value)

    def sources(self) -> bytes | None:
        """Return the folders as a zip file. None: the project has no folders.

        Raises:
            Refused: Two folders have a file of the same name, a folder cannot be read, or the folders are too large.
        """
        if not self.ships:
            return None
        try:
            return _zipped(self._by_name())
        except OSError as error:
            raise Refused(f"cannot read the folders of ships=: {error}; pass other folders") from None

    def _by_name(self) -> dict[str, Path]:
        found: dict[str, Path] = {}
        for path, name in self._files():
            if found.setdefault(name, path) != path:
                raise Refused(f"two folders of ships= have a file {name}: {found[name]} and {path}; pass one of them")
        return dict(sorted(found.items()))

    def _files(self) -> Iterator[tuple[Path, str]]:
        for folder in self.ships:
            root = _importable_from(folder)
            for path, folders, files in folder.walk(on_error=_raise):
                folders[:] = [name for name in folders if _travels(path / name)]
                for name in files:
                    found = path / name
                    # A link may point anywhere, even to files that must not be sent.
                    if not name.startswith(".") and found.is_file() and not found.is_symlink():
                        yield found, str(found.relative_to(root))

    def _module_refusal(self, value: object) -> str | None:
        module = module_of(value)
        file = module and getattr(module, "__file__", None)
        if not module or not file:
            return None
        path, top = Path(file).resolve(), module.__name__.partition(".")[0]
        # Hosts have a replacement for the calling package itself, with the functions that are meant for them.
        if _is_installed(path) or top in _IN_THE_IMAGE or (module is value and module.__name__ == CALLER):
            return None
        if top == CALLER:
            return "part of the package that submits calls; hosts have no cluster to call, so call it here"
        root = path.parents[module.__name__.count(".") + (path.name == "__init__.py")]
        if any(_importable_from(folder) == root and path.is_relative_to(folder) for folder in self.ships):
            return None
        package = root / top
        ships = package if (package / "__init__.py").exists() else root
        return f"of module {module.__name__} ({file}), which the image does not have; pass ships=[{str(ships)!r}]"


def _zipped(files: dict[str, Path]) -> bytes:
    sizes = {name: path.stat().st_size for name, path in files.items()}
    # Check the sizes before reading any file, so that the user of a folder with data need not wait for all of it.
    if (total := sum(sizes.values())) > parcel.MAX_BYTES:
        largest = max(sizes, key=lambda name: sizes[name])
        culprit = [(sizes[largest], str(files[largest]))]
        raise Refused(too_large("files in the folders of ships=", total, parcel.MAX_BYTES, culprit, _SHIP_LESS))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in files.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return file.getvalue()


def _travels(folder: Path) -> bool:
    return not (folder.name.startswith(".") or folder.name in _LEFT_OUT or (folder / _ENVIRONMENT).exists())


def _raise(error: OSError) -> NoReturn:
    raise error


def module_of(value: object) -> ModuleType | None:
    """Return the module from which pickle would make the host import `value`. None: it is sent by value."""
    if isinstance(value, ModuleType):
        return value
    name = getattr(value, "__qualname__", None)
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    if not isinstance(name, str) or module is None or module.__name__ == "__main__":
        return None
    found: object = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return module if found is value else None


def _is_installed(file: Path) -> bool:
    paths = sysconfig.get_paths()
    libraries = {Path(paths[name]).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    # Linux distributions install packages in dist-packages.
    return not {"site-packages", "dist-packages"}.isdisjoint(file.parts) or any(map(file.is_relative_to, libraries))


def _importable_from(folder: Path) -> Path:
    """Return the folder itself or, for a package, the folder from which it is imported."""
    while (folder / "__init__.py").exists():
        folder = folder.parent
    return folder


_ADVICE = "Put it in a bucket and pass its path"


@dataclass(frozen=True)
class Packed:
    """A call that is ready to submit."""

    function: str
    parts: Mapping[str, bytes]


def pack(
    function: Callable[..., Any], calls: Sequence[tuple[tuple[Any, ...], Mapping[str, Any]]], project: Project
) -> list[Packed]:
    """Pack calls of a function with these arguments.

    Raises:
        Refused: The arguments do not match the function, something cannot be sent, or a call is too large. The message
            names it.
    """
    name, given = function_name(function), [_arguments(function, *call) for call in calls]
    captured = dict(_captured(function))
    common = {
        FUNCTION: _part(name, captured, _own(function, project), project),
        TEXT: json.dumps(source_lines(function)).encode(),
    }
    if sources := project.sources():
        common[SOURCES] = sources
    packed: list[Packed] = []
    for (arguments, named), by_name in zip(calls, given, strict=True):
        parts = {**common, ARGUMENTS: _part(name, by_name, (arguments, dict(named)), project)}
        total = sum(map(len, parts.values()))
        if total > parcel.MAX_BYTES:
            largest = sizes({**by_name, **captured}, project.refusal)
            raise _too_large(name, total, [*largest, (len(sources or b""), "the folders of ships=")])
        packed.append(Packed(name, parts))
    return packed


def function_name(function: object) -> str:
    """Return the name of the function, or of its type if it has no name."""
    while isinstance(function, functools.partial):
        function = function.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return getattr(function, "__name__", type(function).__name__)  # pyright: ignore[reportUnknownArgumentType]


def _own(function: Callable[..., Any], project: Project) -> Callable[..., Any]:
    """Return a copy of the function. A copy is in no module, so that pickle sends it by value."""
    if not isinstance(function, FunctionType) or not project.refusal(function):
        return function
    copy = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    for name in functools.WRAPPER_ASSIGNMENTS:
        setattr(copy, name, getattr(function, name))
    return copy


def _part(name: str, named: Mapping[str, Any], value: object, project: Project) -> bytes:
    try:
        return pickled(named, value, project.refusal)
    except Unpicklable as error:
        raise Refused(f"{name} cannot be called on slices:\n{error}") from None
    except TooLarge:
        raise _too_large(name, size_bytes(value, project.refusal), sizes(named, project.refusal)) from None


def _too_large(name: str, total: int, largest: list[tuple[int, str]]) -> Refused:
    message = too_large("code and arguments", total, parcel.MAX_BYTES, sorted(largest, reverse=True), _ADVICE)
    return Refused(f"{name} cannot be called on slices: {message}")


def _arguments(function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    try:
        signature = inspect.signature(function)
    except ValueError:  # some functions written in C have no signature
        return {f"argument {name!r}": value for name, value in [*enumerate(arguments), *named.items()]}
    try:
        return _by_name(signature.bind(*arguments, **named))
    except TypeError as error:
        raise Refused(f"the arguments do not fit {function_name(function)}: {error}") from None


def _by_name(bound: inspect.BoundArguments) -> dict[str, Any]:
    return {f"argument `{name}`": value for name, value in bound.arguments.items()}


def _captured(function: object) -> Iterator[tuple[str, Any]]:
    if isinstance(function, functools.partial):
        given: Any = function
        yield from _by_name(inspect.signature(given.func).bind_partial(*given.args, **given.keywords)).items()
        yield from _captured(given.func)
    elif isinstance(function, MethodType):
        yield "its object `self`", function.__self__
        yield from _captured(function.__func__)
    elif isinstance(function, FunctionType):
        yield from ((f"closure variable `{name}`", value) for name, value in closure(function).items())
        yield from ((f"global `{name}`", value) for name, value in used_globals(function).items())
        for name, parameter in inspect.signature(function, follow_wrapped=False).parameters.items():
            if parameter.default is not inspect.Parameter.empty:
                yield f"default of `{name}`", parameter.default
        if (inner := plain(function)) is not function:
            yield from _captured(inner)
    else:
        yield "the function", function


def source_lines(function: Callable[..., Any]) -> dict[str, str]:
    """Return the source of each file or notebook cell. Lines that are not sent are empty, to keep the line numbers."""
    kept: dict[str, set[int]] = defaultdict(set)
    for code in _codes(function, set()):
        kept[code.co_filename] |= _numbers(code)
    files = {file: linecache.getlines(file) for file in kept}
    return {
        file: "".join(line if number in kept[file] else "\n" for number, line in enumerate(lines, 1))
        for file, lines in files.items()
        if lines
    }


def _codes(value: object, seen: set[int]) -> Iterator[CodeType]:
    function = plain(value)
    if not isinstance(function, FunctionType) or id(function) in seen:
        return
    seen.add(id(function))
    yield function.__code__
    for used in (*closure(function).values(), *used_globals(function).values()):
        if module_of(used) is None:
            yield from _codes(used, seen)


def _numbers(code: CodeType) -> set[int]:
    ends = [end for _, end, _, _ in code.co_positions() if end]
    inner = (_numbers(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(range(code.co_firstlineno, max(ends, default=code.co_firstlineno) + 1)).union(*inner)
