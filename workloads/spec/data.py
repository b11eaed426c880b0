"""Settings of a job's data."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, field_validator

from workloads.spec.base import Number, PositiveInt, Spec

HeldOutFraction = Annotated[Number, Field(gt=0, lt=0.5)]
"""Share of the rows of each dataset, from its end, that is used only for evaluation."""


class StandardLibrarySpec(Spec):
    """The source code of the running Python's standard library as bytes. It needs no download."""

    source: Literal["python-stdlib"]
    max_bytes: PositiveInt
    """Largest number of bytes to read."""
    held_out_fraction: HeldOutFraction


class TokenFolderSpec(Spec):
    """A token folder."""

    path: str
    """Path of the folder on every host. A local path is mapped into memory. From `gs://BUCKET/FOLDER`, a host reads
    only the rows that it trains on."""
    check: Literal["sample", "full"] = "sample"
    """How each attempt compares the files with their manifest, in addition to their sizes. `sample` reads 256 KiB.
    `full` reads all files on every host, which takes about a second per GB."""


class TokenFileSpec(TokenFolderSpec):
    """A token folder that `python -m workloads.data prepare` made."""

    source: Literal["token-file"]
    held_out_fraction: HeldOutFraction


class MixedSpec(TokenFolderSpec):
    """One dataset of a mixture."""

    weight: Annotated[Number, Field(gt=0)]
    """Share of rows from this dataset, relative to the sum of all weights."""


class MixtureSpec(Spec):
    """Several token folders, mixed by weight in one order."""

    source: Literal["mixture"]
    datasets: Mapping[str, MixedSpec]
    """Token folders, each with a name of your choice. All must be made with one tokenizer."""
    held_out_fraction: HeldOutFraction

    @field_validator("datasets")
    @classmethod
    def _each_folder_once(cls, datasets: Mapping[str, MixedSpec]) -> Mapping[str, MixedSpec]:
        names: dict[str, list[str]] = {}
        for name, dataset in datasets.items():
            names.setdefault(dataset.path.rstrip("/"), []).append(name)
        if not names:
            raise ValueError("at least one dataset with a name")
        if twice := [f"{' and '.join(found)} are both {path}" for path, found in names.items() if len(found) > 1]:
            raise ValueError(f"each folder only once, but {'; '.join(twice)}")
        return datasets


DataSpec = Annotated[StandardLibrarySpec | TokenFileSpec | MixtureSpec, Field(discriminator="source")]
"""Where the tokens come from."""


def token_folders(spec: DataSpec) -> dict[str, TokenFolderSpec]:
    """Return the token folders of a job by their settings, such as `data` or `data.datasets.web`."""
    match spec:
        case TokenFileSpec():
            return {"data": spec}
        case MixtureSpec():
            return {f"data.datasets.{name}": dataset for name, dataset in sorted(spec.datasets.items())}
        case StandardLibrarySpec():
            return {}
