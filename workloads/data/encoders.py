"""Converts text to tokens, as bytes or with a Hugging Face `tokenizer.json`."""

import hashlib
from collections.abc import Sequence
from pathlib import PurePosixPath

import numpy as np
from fsspec.core import url_to_fs

from workloads.data.documents import load_library
from workloads.data.token_folder import DataFault, Tokenizer

BYTES = "bytes"
"""Name of the tokenizer without a file, where each byte is a token."""

BYTE_VALUES = 256


class ByteEncoder:
    """Encoder where each byte is a token."""

    identity = Tokenizer(name=BYTES, sha256=None)
    vocabulary = BYTE_VALUES
    """Limit of the tokens. Every token is below it."""

    def encode(self, texts: Sequence[bytes]) -> list[np.ndarray]:
        """Return the tokens of each text. Special tokens in it are treated as plain text."""
        return [np.frombuffer(text, np.uint8) for text in texts]

    def encode_mark(self, text: str) -> np.ndarray:
        """Return the tokens of the user's text between documents, where special tokens are recognised."""
        return np.frombuffer(text.encode(), np.uint8)


class FileEncoder:
    """Encoder of the library `tokenizers` with a `tokenizer.json`."""

    def __init__(self, path: str):
        library = load_library("tokenizers", f"--tokenizer {path}")
        self._path = path
        fs, place = url_to_fs(path)
        try:
            content = fs.cat_file(place)
        except FileNotFoundError:
            raise DataFault(f"--tokenizer: expected {BYTES!r} or a tokenizer.json, got no file {path}") from None
        try:
            self._plain, self._special = (library.Tokenizer.from_str(content.decode()) for _ in range(2))
        # The library raises plain Exception.
        except Exception as fault:  # noqa: BLE001
            raise DataFault(f"{path}: expected a tokenizer.json of Hugging Face, got: {fault}") from None
        self._plain.encode_special_tokens = True
        self.identity = Tokenizer(name=PurePosixPath(path).name, sha256=hashlib.sha256(content).hexdigest())
        # This is not the count of tokens, because their numbers may have gaps.
        self.vocabulary = max(self._plain.get_vocab(with_added_tokens=True).values()) + 1

    def __reduce__(self) -> tuple[type, tuple[str]]:
        """Make another process read the file again, because copies by the library lose the special tokens."""
        return FileEncoder, (self._path,)

    def encode(self, texts: Sequence[bytes]) -> list[np.ndarray]:
        decoded = [text.decode() for text in texts]
        found = self._plain.encode_batch(decoded, add_special_tokens=False)
        return [np.array(each.ids, np.uint32) for each in found]

    def encode_mark(self, text: str) -> np.ndarray:
        return np.array(self._special.encode(text, add_special_tokens=False).ids, np.uint32)


type Encoder = ByteEncoder | FileEncoder
"""Converts text to tokens."""


def load_encoder(tokenizer: str) -> Encoder:
    """Return the encoder `bytes`, or that of a `tokenizer.json` at a local path or a URL.

    Raises:
        DataFault: the file does not exist or is not valid, or its library is missing.
    """
    return ByteEncoder() if tokenizer == BYTES else FileEncoder(tokenizer)
