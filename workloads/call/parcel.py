"""The data that a call sends to its hosts: parts, and a manifest with the hash of each.

The hash of the manifest is in the call's specification, which the API server stores. So hosts unpickle only what the
caller wrote.
"""

import hashlib
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import cloudpickle

from workloads.call.folder import MANIFEST, CallFolder, Damaged
from workloads.spec import CallSpec, Spec

MAX_BYTES = 256 << 20
"""Largest size of all parts of a call, and of its result. Both sides hold them in memory."""
_MAX_MANIFEST_BYTES = 1 << 20
BYTES_PER_MIB = 1 << 20
_CLOUDPICKLE: str = cloudpickle.__version__


def python_version() -> str:
    """Return the part of the interpreter's version that pickled code depends on."""
    return ".".join(platform.python_version_tuple()[:2])


class Part(Spec):
    """One file of a parcel."""

    name: str
    sha256: str
    size_bytes: int

    @classmethod
    def of(cls, name: str, content: bytes) -> Self:
        return cls(name=name, sha256=hashlib.sha256(content).hexdigest(), size_bytes=len(content))


class Manifest(Spec):
    """List of a call's parts."""

    call: str
    function: str
    """Name of the function, for messages."""
    python: str
    """Version of Python that pickled it."""
    cloudpickle: str
    """Version of the package that pickled it."""
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Parcel:
    """A call's parts and their manifest, ready to be written."""

    parts: Mapping[str, bytes]
    manifest: bytes

    @classmethod
    def of(cls, call: str, function: str, parts: Mapping[str, bytes]) -> Self:
        listed = tuple(Part.of(name, content) for name, content in parts.items())
        manifest = Manifest(
            call=call, function=function, python=python_version(), cloudpickle=_CLOUDPICKLE, parts=listed
        )
        return cls(parts, manifest.model_dump_json().encode())

    @property
    def sha256(self) -> str:
        """Hash of the manifest, which covers all parts."""
        return hashlib.sha256(self.manifest).hexdigest()

    def write(self, folder: CallFolder) -> None:
        """Write everything, the manifest last."""
        for name, content in {**self.parts, MANIFEST: self.manifest}.items():
            folder.write(name, content)


def read_parcel(spec: CallSpec, folder: CallFolder) -> tuple[Manifest, Mapping[str, bytes]]:
    """Return the manifest and the parts after checking their hashes.

    Raises:
        Damaged: a file is missing, or its hash is wrong.
        ValueError: another version of Python or of cloudpickle packed it.
    """
    written = _read_part(folder, MANIFEST, spec.manifest_sha256, _MAX_MANIFEST_BYTES)
    manifest = Manifest.model_validate_json(written)
    if (got := (manifest.python, _major(manifest.cloudpickle))) != (has := (python_version(), _major(_CLOUDPICKLE))):
        raise ValueError(
            f"expected a call packed by the image's Python {has[0]} and cloudpickle {has[1]}, got one packed by"
            f" {got[0]} and {got[1]}; call from an environment with the image's versions"
        )
    return manifest, {part.name: _read_part(folder, part.name, part.sha256, part.size_bytes) for part in manifest.parts}


def _major(version: str) -> str:
    return version.partition(".")[0]


def _read_part(folder: CallFolder, name: str, sha256: str, most_bytes: int) -> bytes:
    content = folder.read(name, most_bytes)
    if content is None:
        raise Damaged(f"expected {folder.path}/{name}, found none; call again")
    if (found := hashlib.sha256(content).hexdigest()) != sha256:
        raise Damaged(
            f"{folder.path}/{name}: expected SHA-256 {sha256[:12]}, got {found[:12]}; it is not opened. Call again,"
            " and check who can write to the bucket"
        )
    return content
