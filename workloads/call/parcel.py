"""What travels to the hosts of a call: parts, and a manifest with the hash of each.

The manifest's own hash is in the call's specification, which the API server keeps: nothing is unpickled that whoever
called did not write.
"""

import hashlib
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import cloudpickle

from workloads.call.folder import MANIFEST, CallFolder, Damaged
from workloads.spec import CallSpec, Spec

MOST_BYTES = 256 << 20
"""Of all parts of a call together, and of what its function returns: it is held in memory on both sides."""
_MOST_MANIFEST_BYTES = 1 << 20
BYTES_PER_MIB = 1 << 20
_CLOUDPICKLE: str = cloudpickle.__version__


def python_version() -> str:
    """Of this interpreter, as far as pickled code depends on it."""
    return ".".join(platform.python_version_tuple()[:2])


class Part(Spec):
    """One file of a parcel."""

    name: str
    sha256: str
    size_bytes: int

    @classmethod
    def of(cls, name: str, content: bytes) -> Self:
        """The part that `content` is."""
        return cls(name=name, sha256=hashlib.sha256(content).hexdigest(), size_bytes=len(content))


class Manifest(Spec):
    """What a call consists of."""

    call: str
    function: str
    """Its name, for people."""
    python: str
    """Version that pickled it."""
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
        """The parcel of a call."""
        listed = tuple(Part.of(name, content) for name, content in parts.items())
        manifest = Manifest(
            call=call, function=function, python=python_version(), cloudpickle=_CLOUDPICKLE, parts=listed
        )
        return cls(parts, manifest.model_dump_json().encode())

    @property
    def sha256(self) -> str:
        """Of the manifest, and so of everything."""
        return hashlib.sha256(self.manifest).hexdigest()

    def write(self, folder: CallFolder) -> None:
        """Write everything, the manifest last."""
        for name, content in {**self.parts, MANIFEST: self.manifest}.items():
            folder.write(name, content)


def read_parcel(spec: CallSpec, folder: CallFolder) -> tuple[Manifest, Mapping[str, bytes]]:
    """The manifest and the parts, each held against its hash.

    Raises:
        Damaged: something is missing, or is not what was packed.
        ValueError: another version of Python or of cloudpickle packed it.
    """
    written = _checked(folder, MANIFEST, spec.manifest_sha256, _MOST_MANIFEST_BYTES)
    manifest = Manifest.model_validate_json(written)
    if (got := (manifest.python, _major(manifest.cloudpickle))) != (has := (python_version(), _major(_CLOUDPICKLE))):
        raise ValueError(
            f"expected a call packed by Python {has[0]} and cloudpickle {has[1]}, which the image has, got one packed"
            f" by {got[0]} and {got[1]}; call from an environment with the image's versions"
        )
    return manifest, {part.name: _checked(folder, part.name, part.sha256, part.size_bytes) for part in manifest.parts}


def _major(version: str) -> str:
    return version.partition(".")[0]


def _checked(folder: CallFolder, name: str, sha256: str, most_bytes: int) -> bytes:
    content = folder.read(name, most_bytes)
    if content is None:
        raise Damaged(f"expected {folder.path}/{name}, found none; call again")
    if (found := hashlib.sha256(content).hexdigest()) != sha256:
        raise Damaged(
            f"{folder.path}/{name}: expected SHA-256 {sha256[:12]}, got {found[:12]}; it is not opened. Call again,"
            " and see who may write to the bucket"
        )
    return content
