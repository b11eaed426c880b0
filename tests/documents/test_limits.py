"""The table of docs/explanation/limits.md has the numbers of the sources."""

import re

from multislice_run.pod import BAD_HOST_CHARACTERS
from tests.documents.pages import DOCS, ROOT
from workloads.call.parcel import MAX_BYTES
from workloads.spec.slices import MAX_DEVICES, MAX_SLICES

LIMITS = (DOCS / "explanation" / "limits.md").read_text()


def test_limits_are_those_of_the_sources() -> None:
    limits = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \| `", LIMITS, re.MULTILINE))
    assert limits["slices of a job"] == str(MAX_SLICES)
    assert limits["devices of a job"] == str(MAX_DEVICES)
    assert limits["reason of a bad host's mark"] == f"{BAD_HOST_CHARACTERS} characters"
    assert limits["code and arguments, or result, of a function call"] == f"{MAX_BYTES >> 20} MiB"
    assert all((ROOT / path).exists() for path in re.findall(r"\| `([\w/.]+)` \|$", LIMITS, re.MULTILINE))
