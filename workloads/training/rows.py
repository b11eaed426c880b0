"""Opens the rows of a job's data, checks them against their manifests and the model, and splits them.

Rows come from token folders (`workloads.data`), or are bytes of the standard library of the running Python, which every
host already has. That corpus is built once in the cache for each Python, size and row length. `data` determines the
rows of each batch.
"""

import hashlib
import json
import os
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import accumulate
from math import lcm
from pathlib import Path

import numpy as np

from workloads.data.encoders import ByteEncoder
from workloads.data.token_folder import DataFault, RowReader, TokenFolder, Tokenizer, TokenType, token_type
from workloads.spec import DataSpec, MixtureSpec, StandardLibrarySpec, TokenFolderSpec, token_folders
from workloads.training.failures import InvalidSpec
from workloads.training.read_ahead import read_patiently


def standard_library_rows(max_bytes: int, row_length: int, cache: Path) -> np.ndarray:
    """Return rows of `row_length` bytes, mapped from a file in `cache`, which is built if it does not exist.

    Raises:
        DataFault: `max_bytes` is too small for a training row and a held-out row.
    """
    folder = Path(sysconfig.get_path("stdlib"))
    parts = (max_bytes, row_length, str(folder), sys.version)
    path = cache / f"{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]}.tokens"
    if not path.exists():
        text = _modules(folder, max_bytes)
        count = len(text) // row_length
        if count < 2:
            raise DataFault(f"{len(text)} bytes do not fill two rows of {row_length}; raise data.max_bytes")
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=cache, delete=False) as unfinished:
            unfinished.write(text[: count * row_length])
        # Several hosts on one machine may build at the same time. Each replaces the file with one of the same bytes.
        os.replace(unfinished.name, path)
    return np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, row_length)


def _modules(folder: Path, max_bytes: int) -> bytes:
    """Return the modules of the standard library, without installed packages, in the same order on every machine."""
    text = bytearray()
    for path in sorted(folder.rglob("*.py"), key=lambda path: path.relative_to(folder).as_posix()):
        if not {"site-packages", "dist-packages"} & set(path.parts):
            text += path.read_bytes()
        if len(text) >= max_bytes:
            break
    return bytes(text[:max_bytes])


@dataclass(frozen=True)
class Dataset:
    """Rows of `sequence_length + 1` tokens. The last rows are held out."""

    setting: str
    """Setting of the dataset, such as `data` or `data.datasets.web`."""
    tokens: RowReader
    training_count: int
    weight: int
    """Weight of the dataset, relative to the weights of the job's other datasets."""
    digest: str
    """SHA-256 of the tokens."""
    marked: bool = False
    """Whether tokens are stored with marks; see `workloads.data.packing`."""

    @property
    def count(self) -> int:
        return self.tokens.shape[0]

    @property
    def held_out_count(self) -> int:
        return self.count - self.training_count


@dataclass(frozen=True)
class Rows:
    """The rows of all datasets of a job, numbered through from the first dataset to the last."""

    datasets: tuple[Dataset, ...]
    dtype: TokenType
    """Type for the model's vocabulary. The stored type may be smaller."""
    marked: bool = False
    """Whether rows are returned with marks; see `workloads.data.packing`. In data without prompts, all tokens are
    learned."""

    @property
    def row_length(self) -> int:
        return self.datasets[0].tokens.shape[1]

    @property
    def firsts(self) -> list[int]:
        return [*accumulate((dataset.count for dataset in self.datasets[:-1]), initial=0)]

    @property
    def digest(self) -> str:
        """SHA-256 of the rows, their split and their mixture, which must not change in a run."""
        each = [[one.digest, self.row_length - 1, one.training_count] for one in self.datasets]
        mixed = [[*of_one, one.weight] for of_one, one in zip(each, self.datasets, strict=True)]
        return hashlib.sha256(json.dumps(each[0] if len(each) == 1 else mixed).encode()).hexdigest()

    @property
    def record(self) -> list[dict[str, object]]:
        return [
            {
                "setting": one.setting,
                "digest": one.digest,
                "rows": one.count,
                "training_rows": one.training_count,
                "weight": one.weight,
            }
            for one in self.datasets
        ]

    def read(self, numbers: Sequence[int]) -> np.ndarray:
        found = np.empty((len(numbers), self.row_length), self.dtype)
        wanted = np.array(numbers, np.int64)
        for first, dataset in zip(self.firsts, self.datasets, strict=True):
            (places,) = np.nonzero((first <= wanted) & (wanted < first + dataset.count))
            if len(places):
                tokens = dataset.tokens[(wanted[places] - first).tolist()]
                if dataset.marked and not self.marked:
                    tokens = tokens >> 1
                found[places] = tokens
                if self.marked and not dataset.marked:
                    found[places] <<= 1
        return found


def cache_folder() -> Path:
    """Return the folder of this user's corpus files on this machine."""
    return Path(tempfile.gettempdir()) / f"tpu-multislice-{os.getuid()}"


def load_rows(spec: DataSpec, vocab_size: int, sequence_length: int, cache: Path, marked: bool = False) -> Rows:
    """Return the rows of `spec` for a model of `vocab_size`, with marks if `marked`.

    Data that must be built first is kept in `cache`.

    Raises:
        InvalidSpec: data is damaged, too small, or has tokens outside of the vocabulary. The message has all errors.
        DataUnreadable: storage does not answer.
    """
    sources: list[_Source] = []
    faults: list[str] = []
    for setting, opened in _openers(spec, sequence_length + 1, cache).items():
        try:
            sources.append(opened())
        except DataFault as fault:
            faults.append(f"{setting}: {fault}")
    faults += [*_token_faults(sources, vocab_size)]
    if marked and not faults and not any(source.marked for source in sources):
        faults.append(
            "training.loss_on is completions, but no data marks its prompts; prepare it with --prompt-field or"
            " --messages-field, or set training.loss_on to all"
        )
    if faults:
        raise InvalidSpec("; ".join(faults))
    counts, held_out = [source.rows.shape[0] for source in sources], spec.held_out_fraction
    datasets = [
        Dataset(source.setting, source.rows, count - int(count * held_out), weight, source.digest, source.marked)
        for source, count, weight in zip(sources, counts, _weights(spec), strict=True)
    ]
    return Rows(tuple(datasets), token_type(vocab_size, marked), marked)


@dataclass(frozen=True)
class _Source:
    """One dataset before it is split."""

    setting: str
    rows: RowReader
    vocabulary: int
    digest: str
    tokenizer: Tokenizer
    marked: bool = False


def _openers(spec: DataSpec, row_length: int, cache: Path) -> dict[str, Callable[[], _Source]]:
    """Return the functions that open the datasets, by setting."""
    if isinstance(spec, StandardLibrarySpec):
        return {"data": lambda: _library_rows(spec, row_length, cache)}
    return {
        setting: partial(read_patiently, partial(_token_folder, setting, folder, row_length), folder.path)
        for setting, folder in token_folders(spec).items()
    }


def _library_rows(spec: StandardLibrarySpec, row_length: int, cache: Path) -> _Source:
    rows = standard_library_rows(spec.max_bytes, row_length, cache)
    encoder = ByteEncoder()
    return _Source("data", rows, encoder.vocabulary, hashlib.sha256(rows).hexdigest(), encoder.identity)


def _token_folder(setting: str, spec: TokenFolderSpec, row_length: int) -> _Source:
    folder = TokenFolder.open(spec.path)
    folder.check(spec.check)
    manifest = folder.manifest
    return _Source(
        setting,
        folder.rows(row_length),
        manifest.vocabulary,
        manifest.sha256,
        manifest.tokenizer,
        marked=manifest.packed is not None,
    )


def _token_faults(sources: Sequence[_Source], vocab_size: int) -> Iterator[str]:
    """Check that all tokens are in the model's vocabulary, and that all datasets have the same tokenizer."""
    vocabulary = max((source.vocabulary for source in sources), default=0)
    if vocabulary > vocab_size:
        yield f"model.vocab_size must be at least the {vocabulary} of the data's tokens, got {vocab_size}"
    for source in sources[1:]:
        if source.tokenizer != (expected := sources[0].tokenizer):
            yield (
                f"{source.setting}: expected tokens of the tokenizer {expected}, which made {sources[0].setting},"
                f" got {source.tokenizer}; prepare both with one tokenizer"
            )


def _weights(spec: DataSpec) -> list[int]:
    """Return the weights as integers, so that no rounding adds up over a long run."""
    if not isinstance(spec, MixtureSpec):
        return [1]
    exact = [Fraction(repr(dataset.weight)) for _, dataset in sorted(spec.datasets.items())]
    scale = lcm(*(weight.denominator for weight in exact))
    return [int(weight * scale) for weight in exact]
