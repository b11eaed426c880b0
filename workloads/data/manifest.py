"""What a token folder says of itself.

Owns the layout of the folder and the faults of one that cannot be used:

    tokens.bin     all tokens as one stream, little-endian, no header
    manifest.json  Manifest; written last, so a folder without it is not finished

Rows are not laid out: the trainer cuts the stream at its own sequence length.
"""

from typing import Annotated, Literal

import numpy as np
from fsspec.core import url_to_fs
from pydantic import Field, ValidationError

from workloads.spec import Spec

TOKENS, MANIFEST = "tokens.bin", "manifest.json"

type TokenType = Literal["uint8", "uint16", "uint32"]


class DataFault(ValueError):
    """Text or tokens that cannot be used; the message says which file, why, and what to do."""


class Tokenizer(Spec):
    """What made tokens of the text."""

    name: str
    """`bytes`, or the name of a `tokenizer.json`."""
    sha256: str | None
    """Hash of that file; none for `bytes`."""


class SourceFile(Spec):
    """A file that the tokens come from."""

    path: str
    size: int
    """Bytes as stored, so compressed if it is."""


class Manifest(Spec):
    """The content of `manifest.json`."""

    format_version: Literal[1]
    sha256: str
    """Of `tokens.bin`."""
    sample_sha256: str
    """Of its sampled spans, see `token_file.TokenFile.sample`."""
    tokens: Annotated[int, Field(ge=0)]
    documents: int
    dtype: TokenType
    vocabulary: Annotated[int, Field(gt=0)]
    """Every token is below this."""
    tokenizer: Tokenizer
    end_of_document: str
    """Text whose tokens stand after each document."""
    sources: tuple[SourceFile, ...]

    @property
    def bytes(self) -> int:
        """Size of `tokens.bin`."""
        return self.tokens * stored_type(self.dtype).itemsize


def token_type(vocabulary: int) -> TokenType:
    """The smallest type that holds every token below `vocabulary`."""
    if vocabulary <= 1 << 8:
        return "uint8"
    return "uint16" if vocabulary <= 1 << 16 else "uint32"


def stored_type(dtype: TokenType) -> np.dtype:
    """`dtype` in the byte order of the file."""
    return np.dtype(dtype).newbyteorder("<")


def read_manifest(folder: str) -> Manifest:
    """The manifest of `folder`, a local path or a URL such as `gs://BUCKET/FOLDER`.

    Raises:
        DataFault: there is none, or not one of this format.
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
            f"{folder}/{MANIFEST} is not a manifest of format 1; prepare the folder anew ({fault})"
        ) from None
