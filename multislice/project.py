"""What belongs to the user's project: which modules the image lacks, and the folders that travel with a call."""

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

_IN_THE_IMAGE = ("workloads",)
_LEFT_OUT = frozenset(("__pycache__", "node_modules"))
_ENVIRONMENT = "pyvenv.cfg"
"""File in the root of a virtual environment, whatever its folder is called."""
_ADVICE = "Name folders with modules alone; put data in a bucket and pass its path"
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest that a zip file knows: equal folders give equal bytes."""


class Project:
    """The folders that travel with a function's code."""

    def __init__(self, ships: Sequence[str | Path]) -> None:
        """Take the folders as they are named.

        Raises:
            Refused: one of them is no folder.
        """
        self.ships = tuple(Path(folder).resolve() for folder in ships)
        if missing := [str(folder) for folder in self.ships if not folder.is_dir()]:
            raise Refused(f"expected ships to name folders, got {', '.join(missing)}; name those with your modules")

    def refusal(self, value: object) -> str | None:
        """Why an object of a call cannot go to the hosts."""
        if is_jax_array(value):
            return "a JAX array, which lies on this machine's devices; pass numpy.asarray(x), and make it one there"
        return never_travels(value) or self._module_refusal(value)

    def sources(self) -> bytes | None:
        """The folders as one zip file; None if there are none.

        Raises:
            Refused: two of them have a file of the same name, one cannot be read, or they are too large.
        """
        if not self.ships:
            return None
        try:
            return _zipped(self._by_name())
        except OSError as error:
            raise Refused(f"expected folders of ships= that can be read, got {error}; ship others") from None

    def _by_name(self) -> dict[str, Path]:
        """The files by their names on the hosts, in the order of these."""
        found: dict[str, Path] = {}
        for path, name in self._files():
            if found.setdefault(name, path) != path:
                raise Refused(f"two folders of ships= have a file {name}: {found[name]} and {path}; ship one of them")
        return dict(sorted(found.items()))

    def _files(self) -> Iterator[tuple[Path, str]]:
        for folder in self.ships:
            root = _importable_from(folder)
            for path, folders, files in os.walk(folder, onerror=_raise):
                folders[:] = [name for name in folders if _travels(Path(path) / name)]
                for name in files:
                    found = Path(path) / name
                    # A link may lead anywhere, to what nobody means to send too.
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
        if top == CALLER:
            return "part of the package that calls; hosts have no cluster to call, so call it here"
        root = path.parents[module.__name__.count(".") + (path.name == "__init__.py")]
        if any(_importable_from(folder) == root and path.is_relative_to(folder) for folder in self.ships):
            return None
        package = root / top
        ships = package if (package / "__init__.py").exists() else root
        return f"of module {module.__name__} ({file}), which the image does not have; say ships=[{str(ships)!r}]"


def _zipped(files: dict[str, Path]) -> bytes:
    sizes = {name: path.stat().st_size for name, path in files.items()}
    # Before any is read: whoever names a folder with data in it shall not wait for all of it.
    if (total := sum(sizes.values())) > parcel.MOST_BYTES:
        largest = max(sizes, key=lambda name: sizes[name])
        told = [(sizes[largest], str(files[largest]))]
        raise Refused(too_large("files in the folders of ships=", total, parcel.MOST_BYTES, told, _ADVICE))
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
    """The module by whose name pickle would have the host find `value`; None: it goes by value."""
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
    """Whether the file is of Python or of an installed package."""
    paths = sysconfig.get_paths()
    libraries = {Path(paths[name]).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    resolved = file.resolve()
    # Those of a Linux distribution lie in dist-packages.
    return not {"site-packages", "dist-packages"}.isdisjoint(resolved.parts) or any(
        resolved.is_relative_to(folder) for folder in libraries
    )


def _importable_from(folder: Path) -> Path:
    """The folder itself, or for a package the one that it is imported from."""
    while (folder / "__init__.py").exists():
        folder = folder.parent
    return folder
