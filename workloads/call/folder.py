"""Reads and writes the files of one call in the checkpoint bucket, for the calling machine and for the hosts.

A seal is an Ed25519 signature over the call's folder (which contains its namespace), the file's name and its content.
The call's hosts have the private key, and everyone who can find the call has the public one. So another user with write
access to the bucket cannot change or replace a file unnoticed. A file above its size limit is not read.
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
"""Source file of the function, for the lines of tracebacks, with the file name that its code object has."""
RETURNED = "returned.pkl"
"""Sealed file with the returned value. It exists once the function has returned on all hosts."""
OUTPUT = "output"
"""Folder for the files that the function writes."""
_RAISED = "raised"
_GCS = "gs://"
_SEAL_BYTES = 64
_MAX_SEALED_BYTES = 512 << 20
"""Largest sealed file. It leaves room for `workloads.call.parcel.MAX_BYTES` in base64, as in records of exceptions."""


class Damaged(ValueError):
    """Raised when a file does not have the content that was written."""


def gcs(**options: Any) -> Any:
    """Return Cloud Storage as a file system of fsspec that uses only HTTP.

    By default, gcsfs first queries the kind of the bucket by gRPC, which takes a minute if nothing answers.
    """
    # Importing gcsfs takes half a second, and a local call uses no bucket.
    from gcsfs.core import GCSFileSystem

    return GCSFileSystem(**options)


@dataclass(frozen=True)
class CallFolder:
    """The folder of one call."""

    filesystem: Any
    """A file system of fsspec."""
    path: str

    @classmethod
    def at(cls, url: str) -> Self:
        """Open a local folder, or `gs://BUCKET/teams/NAMESPACE/calls/ID` with this machine's credentials."""
        if url.startswith(_GCS):
            return cls(gcs(), url.removeprefix(_GCS))
        return cls(fsspec.filesystem("file"), url)

    def write(self, name: str, content: bytes) -> None:
        self.filesystem.makedirs(f"{self.path}/{name}".rpartition("/")[0], exist_ok=True)
        self.filesystem.pipe_file(f"{self.path}/{name}", content)

    def read(self, name: str, most_bytes: int) -> bytes | None:
        """Return the whole file. `None` if it does not exist.

        Raises:
            Damaged: it is larger than `most_bytes`.
        """
        path = f"{self.path}/{name}"
        self.filesystem.invalidate_cache()
        try:
            size = self.filesystem.info(path)["size"]
            # The limit also holds if somebody replaces the file with a longer one at this moment.
            content = self.filesystem.cat_file(path, end=size) if 0 < size <= most_bytes else b""
        except FileNotFoundError:
            return None
        if size > most_bytes:
            raise Damaged(f"{path}: expected at most {most_bytes} bytes, got {size}; it is not opened")
        return content

    def names(self, folder: str) -> list[str]:
        """Return the names of the files below a folder, relative to this call's folder."""
        self.filesystem.invalidate_cache()
        try:
            found = self.filesystem.find(f"{self.path}/{folder}".rstrip("/"))
        except FileNotFoundError:
            return []
        return [path.rpartition(f"{self.path.strip('/')}/")[2] for path in found]

    def remove(self, *, keep: str | None = None) -> None:
        """Remove everything except the folder `keep`."""
        doomed = [name for name in self.names("") if keep is None or not name.startswith(f"{keep}/")]
        for name in doomed:
            # Another process may remove it at the same time.
            with suppress(FileNotFoundError):
                self.filesystem.rm_file(f"{self.path}/{name}")


def new_keys() -> tuple[str, str]:
    """Create the private and the public key of a call, both hexadecimal."""
    private = Ed25519PrivateKey.generate()
    return private.private_bytes_raw().hex(), private.public_key().public_bytes_raw().hex()


@dataclass(frozen=True)
class Seals:
    """Seals of the files that one call returns."""

    folder: CallFolder
    call: str
    """Folder of the call, as in its specification."""
    hosts: int
    """Number of hosts of all slices."""
    public_key: bytes
    private_key: bytes | None = None
    """Private key. Without it, this process can read sealed files but not write them."""

    @classmethod
    def of(cls, spec: CallSpec, folder: CallFolder, private_key: str | None = None) -> Self:
        """Return the seals of a call. `private_key` is hexadecimal."""
        private = None if private_key is None else bytes.fromhex(private_key)
        return cls(folder, spec.folder, spec.slices.total_hosts, bytes.fromhex(spec.public_key), private)

    def write(self, name: str, content: bytes) -> None:
        """Write a sealed file. Only processes with the private key can."""
        assert self.private_key is not None
        seal = Ed25519PrivateKey.from_private_bytes(self.private_key).sign(self._signed(name, content))
        self.folder.write(name, seal + content)

    def read(self, name: str) -> bytes | None:
        """Return the content of a sealed file. `None` if it does not exist.

        Raises:
            Damaged: the seal does not match the call, the name and the content, or the file is above the size limit.
        """
        found = self.folder.read(name, _MAX_SEALED_BYTES)
        if found is None:
            return None
        seal, content = found[:_SEAL_BYTES], found[_SEAL_BYTES:]
        try:
            Ed25519PublicKey.from_public_bytes(self.public_key).verify(seal, self._signed(name, content))
        except InvalidSignature:
            raise Damaged(f"{self.folder.path}/{name} is not what the call's hosts wrote; it is not opened") from None
        return content

    def write_raised(self, process: int, record: bytes) -> None:
        self.write(_raised_name(process), record)

    def read_raised(self) -> list[bytes]:
        """Return the records of exceptions in the order of processes. Files that no host writes are ignored.

        Raises:
            Damaged: the seal of a record is wrong.
        """
        there = set(self.folder.names(_RAISED))
        names = [name for name in map(_raised_name, range(self.hosts)) if name in there]
        return [record for name in names if (record := self.read(name)) is not None]

    def _signed(self, name: str, content: bytes) -> bytes:
        return f"{self.call}\0{name}\0".encode() + hashlib.sha256(content).digest()


def _raised_name(process: int) -> str:
    return f"{_RAISED}/{process}.json"
