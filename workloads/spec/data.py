"""Where a job's tokens come from."""

from typing import Annotated, Literal

from pydantic import Field

from workloads.spec.base import Number, PositiveInt, Spec

HeldOutFraction = Annotated[Number, Field(gt=0, lt=0.5)]
"""Share of the rows, at the end of the file, kept for evaluation only."""


class StandardLibrarySpec(Spec):
    """The sources of the running Python's standard library, byte by byte: needs no download."""

    source: Literal["python-stdlib"]
    max_bytes: PositiveInt
    """Read at most this much text."""
    held_out_fraction: HeldOutFraction


class TokenFileSpec(Spec):
    """A folder that `python -m workloads.data prepare` made."""

    source: Literal["token-file"]
    path: str
    """The folder as every host sees it: a local path is mapped into memory, of `gs://BUCKET/FOLDER` a
    host reads the rows that it trains on and no others."""
    held_out_fraction: HeldOutFraction
    check: Literal["sample", "full"] = "sample"
    """How each start compares the file with its manifest, after its size: `sample` reads 256 KiB of it,
    `full` all of it on every host, which takes about a second for each GB and host."""


DataSpec = Annotated[StandardLibrarySpec | TokenFileSpec, Field(discriminator="source")]
"""Where the tokens come from."""
