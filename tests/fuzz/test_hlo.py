"""Texts of programs with anything in them: a module whose every question has an answer, or a ValueError."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.damage import damaged_text
from tests.workloads.preflight.texts import SCAN
from workloads.preflight.hlo import Module, parse

FIRST_COMPUTATION = SCAN.index("\n%")


def _asked(module: Module) -> None:
    for computation in module.computations.values():
        assert computation.root in computation.instructions
        for instruction in computation.instructions:
            assert instruction.size >= 0
            assert instruction.estimated_cycles >= 0
            assert all(map(str, instruction.shapes))
            assert (instruction.called, instruction.branches, instruction.op_name) is not None
            assert len(list(module.sources.stack(instruction))) <= len(module.sources.frames)


def _read_or_refused(text: str) -> None:
    try:
        module = parse(text)
    except ValueError as fault:
        told = str(fault)
    else:
        _asked(module)
        return
    assert "HLO module" in told


@settings(deadline=None)
@given(damaged_text(SCAN))
def test_a_damaged_program_is_read_or_refused(text: str) -> None:
    _read_or_refused(text)


@settings(deadline=None)
@given(st.sampled_from([line for line in SCAN[FIRST_COMPUTATION:].split("\n") if " = " in line]).flatmap(damaged_text))
def test_a_damaged_instruction_is_read_or_refused(line: str) -> None:
    _read_or_refused(f"HloModule m\n\nENTRY %main (a: f32[]) -> f32[] {{\n{line}\n  ROOT %a = f32[] parameter(0)\n}}\n")
