"""Reading a stack file: what is valid, and every error of what is not."""

import re
from collections.abc import Callable
from pathlib import Path

import pulumi
import pytest
from pulumi import runtime

from infra.configuration import load
from infra.stack.settings.errors import SettingsError
from tests.infra.recording import ROOT
from tests.infra.spoiling import errors_of
from tests.infra.stack.settings.faults import OF_THE_STACK
from tests.infra.stack.settings.job_faults import OF_JOBS_AND_FILES

_OF_PYTHON = {"tuple", "dictionary", "instance", "string", "integer", "None", "True", "False"}


@pytest.mark.costs(cpu_seconds=10)
def test_what_is_said_of_each_fault_is_what_the_golden_file_says(accepted_golden: Callable[[Path, str], None]) -> None:
    lines: list[str] = []
    for faults in (*OF_THE_STACK, *OF_JOBS_AND_FILES):
        lines += ["", f"# {faults.name}"]
        for changes, values in faults.spoilt():
            said = "\n".join(errors_of(values, faults.read).values()) or "is accepted"
            assert not _OF_PYTHON & {*re.findall(r"\w+", said)}, said
            lines += [f"- {changes}", *(f"    {line}" for line in said.splitlines())]
    accepted_golden(ROOT / "tests" / "golden" / "faults.txt", "\n".join(lines[1:]) + "\n")


def test_a_plain_value_where_a_section_belongs_is_a_fault_of_its_own() -> None:
    runtime.set_all_config({"tpu-multislice:job": "tiny", "other:key": "ignored"}, [])
    with pytest.raises(SettingsError, match="job: expected .*, got 'tiny'"):
        load(pulumi.Config("tpu-multislice"))
