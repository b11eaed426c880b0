"""Stack files with anything in them: settings, or every fault in words."""

from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli import stack_file
from cli.answer import Halt
from infra.stack.settings.errors import SettingsError
from infra.stack.settings.read import parse
from tests.fuzz.damage import damaged, damaged_bytes
from tests.infra.recording import ROOT, Values, stack_values

STACKS = ("dev", "local", "prod", "staging")


def _is_config(values: object) -> bool:
    """Pulumi and `cli.stack_file` hand over nothing else."""
    return isinstance(values, dict) and all(isinstance(key, str) for key in values)


def _accepted_or_told(values: Values) -> None:
    try:
        parse(values)
    except SettingsError as error:
        faults = error.errors
    else:
        return
    assert faults
    assert all(fault.expected and fault.got and fault.fix for fault in faults)


@settings(deadline=None)
@given(st.sampled_from(STACKS).flatmap(lambda stack: damaged(lambda: stack_values(stack))).filter(_is_config))
def test_damaged_settings_are_accepted_or_every_fault_is_told(values: Values) -> None:
    _accepted_or_told(values)


@pytest.mark.parametrize("section", ["teams", "slices"])
@pytest.mark.parametrize("key", [None, 1])
def test_a_key_that_is_no_name_is_a_fault(section: str, key: object) -> None:
    """YAML has them: `null:` is one."""
    values = stack_values("dev")
    _accepted_or_told(values | {section: {key: None}})
    _accepted_or_told(values | {section: {**values[section], key: None}})


@pytest.fixture(scope="module")
def file() -> Generator[Path]:
    with TemporaryDirectory() as folder:
        yield Path(folder) / "Pulumi.damaged.yaml"


@pytest.mark.costs(cpu_seconds=8)
@settings(deadline=None)
@given(content=damaged_bytes((ROOT / "stacks" / "Pulumi.staging.yaml").read_text()))
def test_a_damaged_stack_file_is_read_or_refused_in_words(content: bytes, file: Path) -> None:
    file.write_bytes(content)
    try:
        stack_file.read(file)
    except Halt as halt:
        told = str(halt)
    else:
        return
    assert str(file) in told
    assert "Fix the file" in told


@pytest.mark.parametrize("value", ['!!int ""', "!!timestamp x", "!!bool x", "!!float ''", "2026-13-45", "1" * 5000])
def test_a_value_that_is_not_what_it_says_is_refused(value: str, file: Path) -> None:
    file.write_text(f"config:\n  tpu-multislice:job: {value}\n")
    with pytest.raises(Halt, match="Fix the file"):
        stack_file.read(file)
