"""The manifest and the layout of a token folder:

    tokens-00000.bin ...  all tokens as one stream, little-endian, no header, cut into files between documents
    manifest.json         Manifest; written last, so a folder without it is not finished

A row may begin in one file and end in the next, so the number of files changes neither rows nor their order. The
trainer cuts the stream into rows of its sequence length. Only conversations have fixed rows; see `packing`.
"""

import hashlib
import json
from operator import not_
from typing import Annotated, Any, Literal

import numpy as np
from fsspec.core import url_to_fs
from pydantic import Field, ValidationError, model_validator

from workloads.spec import Spec

MANIFEST = "manifest.json"

type TokenType = Literal["uint8", "uint16", "uint32"]


class DataFault(ValueError):
    """Raised for text or tokens that cannot be used. The message has the file, the reason and what to do."""


class Tokenizer(Spec):
    """The tokenizer of a folder."""

    name: str
    """Name of the tokenizer: `bytes`, or that of a `tokenizer.json`."""
    sha256: str | None
    """Hash of that file. `None` for `bytes`."""


class SourceFile(Spec):
    """A file that the tokens come from."""

    path: str
    size: int
    """Size in bytes as stored, which may be compressed."""


class PackedRows(Spec):
    """Facts of conversations, which have fixed rows; see `packing`."""

    sequence_length: Annotated[int, Field(gt=0)]
    """Tokens of a row minus one. The folder can train only with this sequence length."""
    padding: int
    """Number of padding tokens."""
    cut: int
    """Number of conversations that were longer than a row and lost their end."""


class TokenFile(Spec):
    """A file with tokens."""

    name: str
    tokens: Annotated[int, Field(ge=0)]
    sha256: str


class Manifest(Spec):
    """The content of `manifest.json`."""

    format_version: Literal[2]
    files: tuple[TokenFile, ...]
    """Files in the order of the stream."""
    sample_sha256: str
    """Hash of sampled spans of the stream; see `token_folder.TokenFolder.sample`."""
    documents: int
    dtype: TokenType
    vocabulary: Annotated[int, Field(gt=0)]
    """Limit of the tokens. Every token is below it."""
    tokenizer: Tokenizer
    end_of_document: str
    """Text whose tokens are added after each document."""
    sources: tuple[SourceFile, ...]
    packed: Annotated[PackedRows | None, Field(exclude_if=not_)] = None
    """Facts of packed conversations, whose tokens have marks of prompts. `None` for a stream, which can be cut at any
    sequence length and is learned as a whole."""

    @model_validator(mode="before")
    @classmethod
    def _from_format_1(cls, written: Any) -> Any:
        """Convert the first format, whose single file had no separate entry."""
        if not isinstance(written, dict) or written.get("format_version") != 1:
            return written
        file = {"name": "tokens.bin", **{key: written[key] for key in ("tokens", "sha256") if key in written}}
        rest = {key: value for key, value in written.items() if key not in file}
        return {**rest, "format_version": 2, "files": [file]}

    @property
    def tokens(self) -> int:
        return sum(file.tokens for file in self.files)

    @property
    def sha256(self) -> str:
        """Hash of the only file, or of the hashes of all files."""
        hashes = [file.sha256 for file in self.files]
        return hashes[0] if len(hashes) == 1 else hashlib.sha256(json.dumps(hashes).encode()).hexdigest()

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return self.tokens * self.token_bytes

    @property
    def token_bytes(self) -> int:
        """Size of a token."""
        return stored_type(self.dtype).itemsize


def token_type(vocabulary: int, marked: bool = False) -> TokenType:
    """Return the smallest type for tokens below `vocabulary`, or below twice as much with `marked`."""
    numbers = 2 * vocabulary if marked else vocabulary
    if numbers <= 1 << 8:
        return "uint8"
    return "uint16" if numbers <= 1 << 16 else "uint32"


def stored_type(dtype: TokenType) -> np.dtype:
    """Return `dtype` in the byte order of the file."""
    return np.dtype(dtype).newbyteorder("<")


def read_manifest(folder: str) -> Manifest:
    """Return the manifest of `folder`, a local path or a URL such as `gs://BUCKET/FOLDER`.

    Raises:
        DataFault: there is no manifest, or it has another format.
    """
    fs, path = url_to_fs(folder)
    try:
        return Manifest.model_validate_json(fs.cat_file(f"{path}/{MANIFEST}"))
    except FileNotFoundError:
        raise DataFault(
            f"{folder}: expected a finished token folder, got no {MANIFEST};"
            f" make it with python -m workloads.data prepare --output {folder}"
        ) from None
    except ValidationError as fault:
        raise DataFault(
            f"{folder}/{MANIFEST} is not a manifest of format 1 or 2; prepare the folder again ({fault})"
        ) from None
