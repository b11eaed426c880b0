"""The files of one call in the checkpoint bucket, as the desk that calls and the hosts that work see them.

A seal is an Ed25519 signature over the call's folder, which contains its namespace, the file's name and its content.
The call's hosts have the private key, and everyone who finds the call has the public one. So nobody else who can write
to the bucket can change a file or replace it with another one unnoticed. A file that is larger than it can be is not
read.
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import fsspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from workloads.spec import CallSpec

MANIFEST = "manifest.json"
FUNCTION = "function.pkl"
ARGUMENTS = "arguments.pkl"
SOURCES = "sources.zip"
TEXT = "text.json"
"""The function's own source file, for the lines of tracebacks; by the name that its code has for it."""
RETURNED = "returned.pkl"
"""Sealed; there once the function has returned on all hosts."""
OUTPUT = "output"
"""Folder for whatever the function writes."""
_RAISED = "raised"
_GCS = "gs://"
_SEAL_BYTES = 64
_MOST_SEALED_BYTES = 512 << 20
"""More than `workloads.call.parcel.MOST_BYTES` and the same in base64, as exceptions have it."""


class Damaged(ValueError):
    """A file is not what was written there."""


def gcs(**options: Any) -> Any:
    """Object storage as a file system of fsspec, over HTTP alone.

    What gcsfs itself offers first asks by gRPC of what kind a bucket is, which takes a minute where nothing answers.
    """
    # Takes half a second to import, and the other side may have no bucket.
    from gcsfs.core import GCSFileSystem

    return GCSFileSystem(**options)


@dataclass(frozen=True)
class CallFolder:
    """One call's folder."""

    filesystem: Any
    """Of fsspec."""
    path: str

    @classmethod
    def at(cls, url: str) -> Self:
        """The folder at `gs://BUCKET/teams/NAMESPACE/calls/ID` or at a local path, with this machine's credentials."""
        if url.startswith(_GCS):
            return cls(gcs(), url.removeprefix(_GCS))
        return cls(fsspec.filesystem("file"), url)

    def write(self, name: str, content: bytes) -> None:
        """Write a whole file."""
        self.filesystem.makedirs(f"{self.path}/{name}".rpartition("/")[0], exist_ok=True)
        self.filesystem.pipe_file(f"{self.path}/{name}", content)

    def read(self, name: str, most_bytes: int) -> bytes | None:
        """The whole file; None if there is none.

        Raises:
            Damaged: it is larger than `most_bytes`.
        """
        path = f"{self.path}/{name}"
        self.filesystem.invalidate_cache()
        try:
            size = self.filesystem.info(path)["size"]
            # Whoever writes it anew meanwhile cannot make it longer either.
            content = self.filesystem.cat_file(path, end=size) if 0 < size <= most_bytes else b""
        except FileNotFoundError:
            return None
        if size > most_bytes:
            raise Damaged(f"{path}: expected at most {most_bytes} bytes, got {size}; it is not opened")
        return content

    def names(self, folder: str) -> list[str]:
        """Names below a folder of this one, from this one on."""
        self.filesystem.invalidate_cache()
        try:
            found = self.filesystem.find(f"{self.path}/{folder}".rstrip("/"))
        except FileNotFoundError:
            return []
        return [path.rpartition(f"{self.path.strip('/')}/")[2] for path in found]

    def remove(self, *, keep: str | None = None) -> None:
        """Remove all of it, but for the folder `keep`."""
        doomed = [name for name in self.names("") if keep is None or not name.startswith(f"{keep}/")]
        for name in doomed:
            # Another process may remove it too.
            with suppress(FileNotFoundError):
                self.filesystem.rm_file(f"{self.path}/{name}")


def new_keys() -> tuple[str, str]:
    """Make the private and the public key of a call, both hexadecimal."""
    private = Ed25519PrivateKey.generate()
    return private.private_bytes_raw().hex(), private.public_key().public_bytes_raw().hex()


@dataclass(frozen=True)
class Seals:
    """Of the files that come back from one call."""

    folder: CallFolder
    call: str
    """Its folder, as its specification names it."""
    hosts: int
    """Of all slices."""
    public_key: bytes
    private_key: bytes | None = None
    """None: this process can read sealed files but not write them."""

    @classmethod
    def of(cls, spec: CallSpec, folder: CallFolder, private_key: str | None = None) -> Self:
        """Return the seals of a call; `private_key` is hexadecimal."""
        private = None if private_key is None else bytes.fromhex(private_key)
        return cls(folder, spec.folder, spec.slices.total_hosts, bytes.fromhex(spec.public_key), private)

    def write(self, name: str, content: bytes) -> None:
        """Write a sealed file. Only processes with the private key can."""
        assert self.private_key is not None
        seal = Ed25519PrivateKey.from_private_bytes(self.private_key).sign(self._signed(name, content))
        self.folder.write(name, seal + content)

    def read(self, name: str) -> bytes | None:
        """The content of a sealed file; None if there is none.

        Raises:
            Damaged: its seal is not that of this call, this name and this content, or it is larger than it can be.
        """
        found = self.folder.read(name, _MOST_SEALED_BYTES)
        if found is None:
            return None
        seal, content = found[:_SEAL_BYTES], found[_SEAL_BYTES:]
        try:
            Ed25519PublicKey.from_public_bytes(self.public_key).verify(seal, self._signed(name, content))
        except InvalidSignature:
            raise Damaged(f"{self.folder.path}/{name} is not what the call's hosts wrote; it is not opened") from None
        return content

    def write_raised(self, process: int, record: bytes) -> None:
        """What a host's function raised."""
        self.write(_raised(process), record)

    def read_raised(self) -> list[bytes]:
        """What hosts' functions raised, by process; empty if none did. What no host would write is passed over.

        Raises:
            Damaged: a record's seal is wrong.
        """
        there = set(self.folder.names(_RAISED))
        names = [name for name in map(_raised, range(self.hosts)) if name in there]
        return [record for name in names if (record := self.read(name)) is not None]

    def _signed(self, name: str, content: bytes) -> bytes:
        return f"{self.call}\0{name}\0".encode() + hashlib.sha256(content).digest()


def _raised(process: int) -> str:
    return f"{_RAISED}/{process}.json"
