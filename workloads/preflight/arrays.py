"""Lists the largest arrays in a device's memory at the peak of a step.

It reads XLA's list of the live buffers and names each by the source line that makes it, or as part of the training
state.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from workloads.preflight.hlo import Computation, Instruction, Module, Shape, parse
from workloads.preflight.work import phase_of, source_of
from workloads.preflight_result import BigArray

SHOWN = 8

_GIB = 1 << 30
_PEAK = re.compile(r"^  Live ranges at \d+ \(peak\):\n((?:    .*\n)*)", re.MULTILINE)
_BUFFER = re.compile(r"^    ([\w.\-]+)\{([\d,]*)\}: (\d+) bytes", re.MULTILINE)
_HELD = {"state.": "training state", "frozen[": "frozen weights"}
"""Descriptions of arguments, by the beginning of their names."""
_FOLLOWED = 16
"""Largest number of instructions to follow from a buffer back to the one that fills it."""


@dataclass(frozen=True)
class _Program:
    module: Module
    homes: Mapping[str, Computation]
    """Computation of each instruction."""
    loops: Mapping[str, Instruction]
    """Each `while`, by the name of its body."""


def biggest_arrays(text: str, live_ranges: str) -> tuple[BigArray, ...]:
    """Return the largest arrays of the scheduled module `text` from the dump `live_ranges` of its buffers.

    Equal arrays are added up.
    """
    module = parse(text)
    placed = [(each, computation) for computation in module.computations.values() for each in computation.instructions]
    program = _Program(
        module,
        {instruction.name: computation for instruction, computation in placed},
        {instruction.called["body"]: instruction for instruction, _ in placed if instruction.opcode == "while"},
    )
    peak = _PEAK.search(live_ranges)
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for name, index, size in _BUFFER.findall(peak[1] if peak else ""):
        if name in program.homes:
            groups[_describe(program, name, index, int(size))].append(int(size))
    arrays = (
        BigArray(what=what, shape=_with_count(shape, len(sizes)), gib=sum(sizes) / _GIB)
        for (what, shape), sizes in groups.items()
    )
    return tuple(sorted(arrays, key=lambda array: -array.gib)[:SHOWN])


def _with_count(shape: str, count: int) -> str:
    if not shape:
        return f"{count} arrays"
    return f"{count} x {shape}" if count > 1 else shape


def _describe(program: _Program, name: str, index: str, size: int) -> tuple[str, str]:
    """Return what a buffer is, and its shape.

    The training state counts as one item without a shape, and so do frozen weights.
    """
    instruction = program.homes[name].by_name[name]
    maker = _maker(program, instruction, index)
    held = next((words for start, words in _HELD.items() if maker.op_name.startswith(start)), None)
    if held and maker is instruction:
        return held, ""
    what = f"{phase_of(maker.op_name)}, {source_of(program.module, maker)}"
    primitive = maker.op_name.rsplit("/", 1)[-1]
    return what if primitive in what else f"{what} {primitive}", str(_shape(instruction, index, size))


def _shape(instruction: Instruction, index: str, size: int) -> Shape:
    if index.isdigit() and int(index) < len(instruction.shapes):
        return instruction.shapes[int(index)]
    return min(instruction.shapes, key=lambda shape: abs(shape.size - size))


def _maker(program: _Program, instruction: Instruction, index: str) -> Instruction:
    """Return the nearest instruction with a name behind the buffer. The parts of a loop that carry it have no names."""
    for _ in range(_FOLLOWED):
        home = program.homes[instruction.name]
        body = instruction.called.get("body") or (home.name if instruction.opcode == "parameter" else None)
        if index and body and body in program.loops:
            following = _trace_loop(program, body, int(index.split(",")[0]))
            index = ""
        elif instruction.op_name or not instruction.operands:
            return instruction
        else:
            following = home.by_name.get(instruction.operands[0])
        if following is None:
            return instruction
        instruction = following
    return instruction


def _trace_loop(program: _Program, body: str, element: int) -> Instruction | None:
    """Return the instruction that computes an element of a loop's state, or its initial value if it does not change."""
    computation = program.module.computations[body]
    made = _element(computation, computation.root, element)
    if made is None or made.opcode != "parameter":
        return made
    loop = program.loops[body]
    caller = program.homes[loop.name]
    start = caller.by_name.get(loop.operands[0])
    return _element(caller, start, element) if start else None


def _element(computation: Computation, values: Instruction, element: int) -> Instruction | None:
    """Return the instruction that computes an element of a tuple, also if other tuples pass it on."""
    if values.opcode != "tuple" or element >= len(values.operands):
        return None
    made = computation.by_name.get(values.operands[element])
    while made and made.opcode == "get-tuple-element":
        made = computation.by_name.get(made.operands[0])
    return made
