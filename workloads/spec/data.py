"""Where a job's tokens come from."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, field_validator

from workloads.spec.base import Number, PositiveInt, Spec

HeldOutFraction = Annotated[Number, Field(gt=0, lt=0.5)]
"""Share of the rows, at the end of each dataset, kept for evaluation only."""


class StandardLibrarySpec(Spec):
    """The sources of the running Python's standard library, byte by byte: needs no download."""

    source: Literal["python-stdlib"]
    max_bytes: PositiveInt
    """Read at most this much text."""
    held_out_fraction: HeldOutFraction


class TokenFolderSpec(Spec):
    """A token folder, wherever it is named."""

    path: str
    """The folder as every host sees it: a local path is mapped into memory, of `gs://BUCKET/FOLDER` a
    host reads the rows that it trains on and no others."""
    check: Literal["sample", "full"] = "sample"
    """How each start compares the files with their manifest, after their sizes: `sample` reads 256 KiB of them,
    `full` all of them on every host, which takes about a second for each GB and host."""


class TokenFileSpec(TokenFolderSpec):
    """A folder that `python -m workloads.data prepare` made."""

    source: Literal["token-file"]
    held_out_fraction: HeldOutFraction


class MixedSpec(TokenFolderSpec):
    """One dataset of a mixture."""

    weight: Annotated[Number, Field(gt=0)]
    """Share of the rows that are of this dataset, as a part of the sum of all weights."""


class MixtureSpec(Spec):
    """Several such folders, mixed by weight in one order."""

    source: Literal["mixture"]
    datasets: Mapping[str, MixedSpec]
    """Token folders by a name of your choice, all made with one tokenizer."""
    held_out_fraction: HeldOutFraction

    @field_validator("datasets")
    @classmethod
    def _each_folder_once(cls, datasets: Mapping[str, MixedSpec]) -> Mapping[str, MixedSpec]:
        names: dict[str, list[str]] = {}
        for name, dataset in datasets.items():
            names.setdefault(dataset.path.rstrip("/"), []).append(name)
        if not names:
            raise ValueError("at least one dataset by name")
        if twice := [f"{' and '.join(found)} are both {path}" for path, found in names.items() if len(found) > 1]:
            raise ValueError(f"each folder once, but {'; '.join(twice)}")
        return datasets


DataSpec = Annotated[StandardLibrarySpec | TokenFileSpec | MixtureSpec, Field(discriminator="source")]
"""Where the tokens come from."""


def token_folders(spec: DataSpec) -> dict[str, TokenFolderSpec]:
    """The token folders of a job, each by the setting that names it, such as `data` or `data.datasets.web`."""
    match spec:
        case TokenFileSpec():
            return {"data": spec}
        case MixtureSpec():
            return {f"data.datasets.{name}": dataset for name, dataset in sorted(spec.datasets.items())}
        case StandardLibrarySpec():
            return {}
