"""Reads and writes folders of safetensors files and their index. `families` has the layout of the tensors."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import IO, Any, Literal, Self

import jax.numpy as jnp
import numpy as np
from etils import epath
from safetensors import SafetensorError, safe_open

from workloads.training.failures import InvalidSpec
from workloads.weights.families import Tensor

INDEX = "model.safetensors.index.json"

SHARD_BYTES = 5 * 10**9
"""Largest size of a file, as for Hugging Face."""

NAMED_FAULTS = 8
"""Largest number of errors of each kind in a message. A wrong preset causes thousands."""

DType = Literal["float32", "bfloat16"]

_WRITTEN_TYPES: dict[DType, str] = {"float32": "F32", "bfloat16": "BF16"}
_READ_TYPES = ("BF16", "F16", "F32")


class TensorFiles:
    """The tensors of a local folder. Each is read on demand."""

    def __init__(self, folder: Path):
        """Open the files in the index, or all files if there is no index."""
        self.unreadable: list[str] = []
        """Messages about files that are missing or damaged."""
        self._open = ExitStack()
        self._files: dict[str, Any] = {}
        for path in self._paths(folder):
            try:
                file = self._open.enter_context(safe_open(path, framework="np"))
            except (SafetensorError, OSError) as error:
                self.unreadable.append(f"{path} must be a whole safetensors file: {error}; download it again")
            else:
                self._files |= dict.fromkeys(file.keys(), file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def read(self, name: str) -> np.ndarray:
        """Return a tensor. A bfloat16 tensor has the type of ml_dtypes."""
        return self._files[name].get_tensor(name)

    def faults(self, expected: Sequence[Tensor], copies: Mapping[str, str]) -> list[str]:
        """Return a message for each difference between the files, which must be readable, and the `expected` tensors.

        The files may also have `copies`, each with the name of the tensor that it must equal.
        """
        names = {tensor.name for tensor in expected} | copies.keys()
        slices = {name: file.get_slice(name) for name, file in self._files.items()}
        shapes = {name: one.get_shape() for name, one in slices.items()}
        types = {name: one.get_dtype() for name, one in slices.items()}
        shaped = {tensor.name: list(tensor.shape) for tensor in expected}
        there = {name: shape for name, shape in shaped.items() if name in shapes}
        missing = [f"{name} {shape}" for name, shape in shaped.items() if name not in there]
        unexpected = [f"{name} {shape}" for name, shape in shapes.items() if name not in names]
        reshaped = [f"{name} expected {one}, got {shapes[name]}" for name, one in there.items() if one != shapes[name]]
        pairs = [(copy, first) for copy, first in copies.items() if {copy, first} <= shapes.keys()]
        unequal = [(copy, first) for copy, first in pairs if not np.array_equal(self.read(copy), self.read(first))]
        odd = [f"{name} {one}" for name, one in types.items() if one not in _READ_TYPES]
        return [
            *_some("missing", missing),
            *_some("unexpected", unexpected),
            *_some("of another shape", reshaped),
            *(f"{copy} differs from {first}, but the model has one table for both" for copy, first in unequal),
            *_some(f"of another type than {', '.join(_READ_TYPES)}", odd),
        ]

    def _paths(self, folder: Path) -> list[Path]:
        index = folder / INDEX
        try:
            paths = _indexed_files(index) if index.exists() else sorted(folder.glob("*.safetensors"))
        except InvalidSpec as fault:
            self.unreadable.append(str(fault))
            return []
        if not paths:
            self.unreadable.append(f"{folder} must be a folder with *.safetensors files, but has none; choose another")
        return paths


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        InvalidSpec: the file is not a JSON object.
    """
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InvalidSpec(f"{path} must be JSON: {error}; download it again") from None
    if not isinstance(found, dict):
        raise InvalidSpec(f"{path} must be a JSON object, got a {type(found).__name__}; download it again")
    return found


def _indexed_files(index: Path) -> list[Path]:
    files = read_object(index).get("weight_map")
    if not isinstance(files, dict) or not all(isinstance(name, str) for name in files.values()):
        raise InvalidSpec(
            f"{index} must have a weight_map with the file of each tensor, but has none; download it again"
        )
    if paths := sorted(name for name in set(files.values()) if name != Path(name).name or name == ".."):
        raise InvalidSpec(f"{index} must name files next to it, but names {', '.join(paths)}; download it again")
    return [index.with_name(name) for name in sorted(set(files.values()))]


def _some(what: str, names: list[str]) -> Iterator[str]:
    if names:
        more = f" and {len(names) - NAMED_FAULTS} more" if len(names) > NAMED_FAULTS else ""
        yield f"{what}: {', '.join(names[:NAMED_FAULTS])}{more}"


@dataclass(frozen=True)
class Shard:
    """A file to write, and its tensors."""

    name: str
    tensors: Sequence[Tensor]
    dtype: DType

    def begin(self, file: IO[bytes]) -> None:
        """Write the header. The tensors' values follow in order.

        The library's writer needs all values of a file in memory at once
        (format: https://github.com/huggingface/safetensors#format).
        """
        ends = list(accumulate(size_bytes(tensor, self.dtype) for tensor in self.tensors))
        header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        for tensor, begin, end in zip(self.tensors, [0, *ends], ends, strict=False):
            about = {"dtype": _WRITTEN_TYPES[self.dtype], "shape": tensor.shape, "data_offsets": (begin, end)}
            header[tensor.name] = about
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        file.write(len(text).to_bytes(8, "little") + text)


def shards(tensors: Sequence[Tensor], dtype: DType) -> list[Shard]:
    """Return the files for `tensors`, each of at most `SHARD_BYTES` or with one tensor."""
    groups: list[list[Tensor]] = [[]]
    size = 0
    for tensor in tensors:
        size += size_bytes(tensor, dtype)
        if groups[-1] and size > SHARD_BYTES:
            groups.append([])
            size = size_bytes(tensor, dtype)
        groups[-1].append(tensor)
    count = len(groups)
    return [
        Shard(f"model-{number:05}-of-{count:05}.safetensors", group, dtype)
        for number, group in enumerate(groups, start=1)
    ]


def write_index(folder: epath.Path, written: Sequence[Shard]) -> None:
    """Write the index of the files `written` in `folder`."""
    total = sum(size_bytes(tensor, shard.dtype) for shard in written for tensor in shard.tensors)
    names = {tensor.name: shard.name for shard in written for tensor in shard.tensors}
    index = {"metadata": {"total_size": total}, "weight_map": names}
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n")


def size_bytes(tensor: Tensor, dtype: DType) -> int:
    """Return the bytes of the tensor's values in a file."""
    return prod(tensor.shape) * jnp.dtype(dtype).itemsize
