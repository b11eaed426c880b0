"""Finds the modules of the user's project that the image lacks, and packs the folders that are sent with a call."""

import io
import os
import sys
import sysconfig
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from multislice.errors import Refused
from workloads.call import parcel
from workloads.call.function import CALLER
from workloads.call.pickling import is_jax_array, never_travels, too_large

_IN_THE_IMAGE = ("multislice_run", "workloads")
_LEFT_OUT = frozenset(("__pycache__", "node_modules"))
_ENVIRONMENT = "pyvenv.cfg"
"""File in the root of every virtual environment."""
_ADVICE = "Pass only folders with modules; put data in a bucket and pass its path"
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Time of all files in the zip file, so that equal folders give equal bytes. It is the earliest possible time."""


class Project:
    """Folders that are sent with a function's code."""

    def __init__(self, ships: Sequence[str | Path]) -> None:
        """Create the project with the folders `ships`.

        Raises:
            Refused: One of them is not a folder.
        """
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
        """Return the files by their names on the hosts, sorted by name."""
        found: dict[str, Path] = {}
        for path, name in self._files():
            if found.setdefault(name, path) != path:
                raise Refused(f"two folders of ships= have a file {name}: {found[name]} and {path}; pass one of them")
        return dict(sorted(found.items()))

    def _files(self) -> Iterator[tuple[Path, str]]:
        for folder in self.ships:
            root = _importable_from(folder)
            for path, folders, files in os.walk(folder, onerror=_raise):
                folders[:] = [name for name in folders if _travels(Path(path) / name)]
                for name in files:
                    found = Path(path) / name
                    # A link may point anywhere, even to files that must not be sent.
                    if not name.startswith(".") and found.is_file() and not found.is_symlink():
                        yield found, str(found.relative_to(root))

    def _module_refusal(self, value: object) -> str | None:
        module = module_of(value)
        file = module and getattr(module, "__file__", None)
        if not module or not file or _is_installed(Path(file)):
            return None
        path, top = Path(file).resolve(), module.__name__.partition(".")[0]
        if top in _IN_THE_IMAGE:
            return None
        if top == CALLER and isinstance(value, ModuleType) and module.__name__ == CALLER:
            # Hosts have a replacement, with the functions that are meant for them.
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
        raise Refused(too_large("files in the folders of ships=", total, parcel.MAX_BYTES, culprit, _ADVICE))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in files.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return file.getvalue()


def _travels(folder: Path) -> bool:
    hidden = folder.name.startswith(".")
    return not hidden and folder.name not in _LEFT_OUT and not (folder / _ENVIRONMENT).exists()


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
    """Return whether the file belongs to Python or to an installed package."""
    paths = sysconfig.get_paths()
    libraries = {Path(paths[name]).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    resolved = file.resolve()
    # Linux distributions install packages in dist-packages.
    return not {"site-packages", "dist-packages"}.isdisjoint(resolved.parts) or any(
        resolved.is_relative_to(folder) for folder in libraries
    )


def _importable_from(folder: Path) -> Path:
    """Return the folder itself or, for a package, the folder from which it is imported."""
    while (folder / "__init__.py").exists():
        folder = folder.parent
    return folder
