"""Builds the wheel, in which the folders of the repository are one package, `tpu_multislice`.

Other packages have names such as `infra` and `cli` as well. See docs/decisions/0025-one-package-in-the-wheel.md. The
wheel of setuptools is rewritten. Source archives and editable installations are those of setuptools.
"""

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from zipfile import ZipFile, ZipInfo

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
]

PACKAGE = "tpu_multislice"
_INIT = b'"""The commands and the program of tpu-multislice."""\n'
_LIBRARIES = ("multislice", "multislice_run")
"""Packages that programs of users import, with names that no other package has."""
_IMAGE = ("multislice_run", "workloads")
"""Folders that the wheel has as they are copied to the image, where they are packages of their own."""
_ONLY_IN_THE_REPOSITORY = "tools/build_backend.py"
_MOVED = "cli|infra|policy|sandbox|workloads"
_IMPORT = re.compile(rf"^(\s*from )({_MOVED})(\.[\w.]+)?(?= import )", re.MULTILINE)
_COMMAND = re.compile(rf"(?<== )(?={_MOVED})")


def build_wheel(
    wheel_directory: str, config_settings: Mapping[str, str] | None = None, metadata_directory: str | None = None
) -> str:
    """Build the wheel into a folder and return the name of its file, as in PEP 517."""
    name = build_meta.build_wheel(wheel_directory, dict(config_settings or {}))
    path = Path(wheel_directory, name)
    with ZipFile(path) as built:
        entries = {entry.filename: (entry, built.read(entry)) for entry in built.infolist()}
    record = next(name for name in entries if name.endswith(".dist-info/RECORD"))
    del entries[record]
    files = {new: (entry, content) for old, (entry, was) in entries.items() for new, content in moved(old, was)}
    # Python would merge a package without this file with any folder of the same name on the path.
    files[f"{PACKAGE}/__init__.py"] = next(iter(files.values()))[0], _INIT
    lines = [f"{new},{_hash(content)},{len(content)}\n" for new, (_, content) in files.items()]
    files[record] = next(iter(files.values()))[0], "".join([*lines, f"{record},,\n"]).encode()
    with ZipFile(path, "w") as changed:
        for new, (entry, content) in files.items():
            info = ZipInfo(new, entry.date_time)
            info.external_attr, info.compress_type = entry.external_attr, entry.compress_type
            changed.writestr(info, content)
    return name


def moved(name: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents that a file of the wheel of setuptools has in this wheel."""
    path = PurePosixPath(name)
    top = path.parts[0]
    if top.endswith(".dist-info"):
        yield name, _metadata(path.name, content)
    elif name != _ONLY_IN_THE_REPOSITORY:
        new = rewritten(path, content.decode()).encode() if path.suffix == ".py" else content
        if top in _LIBRARIES:
            yield name, new
        if top not in _LIBRARIES or top in _IMAGE:
            yield f"{PACKAGE}/{name}", new


def rewritten(path: PurePosixPath, text: str) -> str:
    """Return a source file with the imports that find its modules in this package.

    Those of an image's folder in itself are relative, so that they also find them in the image.
    """

    def imported(found: re.Match[str]) -> str:
        start, top, rest = found.group(1, 2, 3)
        if top == path.parts[0] and top in _IMAGE:
            return f"{start}{'.' * (len(path.parts) - 1)}{(rest or '').removeprefix('.')}"
        return f"{start}{PACKAGE}.{top}{rest or ''}"

    return _IMPORT.sub(imported, text)


def _metadata(name: str, content: bytes) -> bytes:
    if name == "entry_points.txt":
        return _COMMAND.sub(f"{PACKAGE}.", content.decode()).encode()
    return "".join(f"{top}\n" for top in (*_LIBRARIES, PACKAGE)).encode() if name == "top_level.txt" else content


def _hash(content: bytes) -> str:
    """Return the hash of a file as RECORD has it."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
    return f"sha256={digest.decode()}"
