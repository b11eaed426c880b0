"""What travels to the hosts of a call: parts, and a manifest with the hash of each.

The manifest's own hash is in the call's specification, which the API server keeps: nothing is unpickled that whoever
called did not write.
"""

import hashlib
import platform
from collections.abc import Mapping
from typing import Self

from workloads.call.folder import MANIFEST, CallFolder, Damaged
from workloads.spec import CallSpec, Spec

MOST_BYTES = 256 << 20
"""Of all parts of a call together, and of what its function returns: it is held in memory on both sides."""
BYTES_PER_MIB = 1 << 20


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
    parts: tuple[Part, ...]


def write_parcel(folder: CallFolder, call: str, function: str, parts: Mapping[str, bytes]) -> str:
    """Write the parts and their manifest; the manifest's SHA-256."""
    listed = tuple(Part.of(name, content) for name, content in parts.items())
    manifest = Manifest(call=call, function=function, python=python_version(), parts=listed)
    for name, content in parts.items():
        folder.write(name, content)
    written = manifest.model_dump_json().encode()
    folder.write(MANIFEST, written)
    return hashlib.sha256(written).hexdigest()


def read_parcel(spec: CallSpec, folder: CallFolder) -> tuple[Manifest, Mapping[str, bytes]]:
    """The manifest and the parts, each held against its hash.

    Raises:
        Damaged: something is missing, or is not what was packed.
        ValueError: another version of Python packed it.
    """
    written = _checked(folder, MANIFEST, spec.manifest_sha256)
    manifest = Manifest.model_validate_json(written)
    if manifest.python != python_version():
        raise ValueError(
            f"expected a call packed by Python {python_version()}, which the image has, got one packed by"
            f" {manifest.python}; call from an environment with the image's Python"
        )
    return manifest, {part.name: _checked(folder, part.name, part.sha256) for part in manifest.parts}


def _checked(folder: CallFolder, name: str, sha256: str) -> bytes:
    content = folder.read(name)
    if content is None:
        raise Damaged(f"expected {folder.path}/{name}, found none; call again")
    if (found := hashlib.sha256(content).hexdigest()) != sha256:
        raise Damaged(
            f"{folder.path}/{name}: expected SHA-256 {sha256[:12]}, got {found[:12]}; it is not opened. Call again,"
            " and see who may write to the bucket"
        )
    return content
