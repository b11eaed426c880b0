"""Calculates how often each computation of a module runs in one step.

The text of a TPU program has no trip counts. They are derived from each loop's condition, first value and increment.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from workloads.preflight.hlo import Computation, Instruction, Module

_PASSES_ON = {"copy", "bitcast", "convert", "reshape", "copy-done"}
"""Opcodes that return the value of their operand, for a scalar."""


@dataclass(frozen=True)
class Runs:
    """Number of runs of a computation in one step, and whether it is part of one instruction of its caller."""

    times: int
    fused: bool


@dataclass(frozen=True)
class Schedule:
    """Number of runs of all computations of a module."""

    runs: Mapping[str, Runs]
    """Runs by computation. Computations that never run, such as the addition of an all-reduce, are left out."""
    unknown_loops: tuple[str, ...]
    """Loops whose trip count cannot be derived. Their bodies count once."""

    def instructions(self, module: Module) -> Iterator[tuple[Runs, Computation, Instruction]]:
        for name, runs in self.runs.items():
            for instruction in module.computations[name].instructions:
                yield runs, module.computations[name], instruction


def schedule(module: Module) -> Schedule:
    """Return how often the computations of `module` run."""
    runs: dict[str, Runs] = {}
    unknown: list[str] = []

    def add(name: str, times: int, fused: bool) -> None:
        before = runs.get(name, Runs(0, fused))
        runs[name] = Runs(before.times + times, fused)

    # Callers come after what they call.
    for computation in reversed(list(module.computations.values())):
        if computation.entry:
            add(computation.name, 1, fused=False)
        if computation.name not in runs:
            continue
        own = runs[computation.name]
        for instruction in computation.instructions:
            called = instruction.called
            if instruction.opcode == "while":
                trips = trip_count(module, computation, instruction)
                if trips is None:
                    unknown.append(instruction.name)
                add(called["body"], own.times * (1 if trips is None else trips), own.fused)
            elif instruction.opcode == "call":
                add(called["to_apply"], own.times, own.fused)
            elif instruction.opcode == "call-start":
                # Runs on a SparseCore, in parallel to the program.
                add(called["to_apply"], own.times, fused=True)
            elif "calls" in called:
                add(called["calls"], own.times, fused=True)
            for branch in instruction.branches:
                add(branch, own.times, own.fused)
    return Schedule(runs, tuple(unknown))


def trip_count(module: Module, caller: Computation, loop: Instruction) -> int | None:
    """Return how often the body of `loop` runs. `None` if it cannot be derived from the text."""
    condition = module.computations[loop.called["condition"]]
    comparison = _comparison(module, condition)
    if comparison is None:
        return None
    direction, left, right = comparison
    counter = _carried_place(condition, left)
    first = _initial(condition, caller, loop, left)
    limit = _initial(condition, caller, loop, right)
    if counter is None or first is None or limit is None:
        return None
    step = _step(module.computations[loop.called["body"]], counter)
    span = {"LT": limit - first, "LE": limit - first + 1, "GT": first - limit, "GE": first - limit + 1}
    return max(0, -(-span[direction] // abs(step))) if direction in span else None


def _comparison(module: Module, condition: Computation) -> tuple[str, str, str] | None:
    """Return direction and operands of the condition, as names in it."""
    root = condition.root
    names = root.operands
    if root.opcode == "fusion":
        inner = module.computations[root.called["calls"]]
        parameters = {each.name: int(each.arguments) for each in inner.instructions if each.opcode == "parameter"}
        root = inner.root
        if not all(name in parameters for name in root.operands):
            return None
        names = tuple(names[parameters[name]] for name in root.operands)
    direction = root.attribute(r"direction=(\w+)")
    return (direction, names[0], names[1]) if root.opcode == "compare" and direction else None


def _initial(condition: Computation, caller: Computation, loop: Instruction, name: str) -> int | None:
    """Return the value of `name` in the condition before the first iteration."""
    place = _carried_place(condition, name)
    if place is None:
        return _constant(condition, name)
    carried = caller.by_name.get(loop.operands[0])
    if carried is None or carried.opcode != "tuple":
        return None
    return _constant(caller, carried.operands[place])


def _carried_place(computation: Computation, name: str) -> int | None:
    """Return the index in the loop's tuple that `name` is read from."""
    instruction = _origin(computation, name)
    index = instruction.attribute(r"index=(\d+)") if instruction.opcode == "get-tuple-element" else None
    return None if index is None else int(index)


def _origin(computation: Computation, name: str) -> Instruction:
    instruction = computation.by_name[name]
    while instruction.opcode in _PASSES_ON:
        instruction = computation.by_name[instruction.operands[0]]
    return instruction


def _constant(computation: Computation, name: str) -> int | None:
    instruction = _origin(computation, name)
    whole = instruction.opcode == "constant" and instruction.arguments.lstrip("-").isdecimal()
    return int(instruction.arguments) if whole else None


def _step(body: Computation, place: int) -> int:
    """Return what each iteration adds to the counter. 1 if the text does not show it."""
    root = body.root
    if root.opcode != "tuple":
        return 1
    added = _origin(body, root.operands[place])
    if added.opcode != "add":
        return 1
    constants = [_constant(body, name) for name in added.operands]
    return next((value for value in constants if value), 1)
