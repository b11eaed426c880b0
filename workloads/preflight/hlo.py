"""Parses the text of an optimised HLO module: shapes, instructions, computations and source locations.

The text is that of `jax.stages.Compiled.as_text()`, which has the instructions in scheduled order.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

_BITS = {"pred": 8, "token": 0, "opaque": 0, "c64": 64, "c128": 128}
"""Sizes in bits of element types whose name does not contain them."""

_SHAPE = re.compile(r"\b([a-z][a-z0-9]*)\[([0-9,<= ]*)\]")
_NAME = re.compile(r"%([\w.\-]+)")
_INSTRUCTION = re.compile(r"  (ROOT )?%?([\w.\-]+) = ")
_OPCODE = re.compile(r" ([a-z][\w\-]*)\(")
_COMPUTATION = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*\{$")
_CALLED = re.compile(r"\b(calls|body|condition|to_apply|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"\bbranch_computations=\{([^}]*)\}")
_SENTINEL_DIGITS = 15
"""Number of digits from which `estimated_cycles` means that XLA has no estimate: it is near the largest int64."""


@dataclass(frozen=True)
class Shape:
    """An array type, without its layout."""

    element: str
    dimensions: tuple[int, ...]

    @property
    def elements(self) -> int:
        return prod(self.dimensions)

    @property
    def size(self) -> int:
        """Size in bytes without padding."""
        digits = re.search(r"\d+", self.element)
        bits = _BITS[self.element] if self.element in _BITS else int(digits[0]) if digits else 0
        return self.elements * bits // 8

    def __str__(self) -> str:
        return f"{self.element}[{','.join(map(str, self.dimensions))}]"


@dataclass(frozen=True)
class Instruction:
    """One line of a computation."""

    name: str
    opcode: str
    shapes: tuple[Shape, ...]
    """Shapes of the result. A tuple is flattened."""
    operands: tuple[str, ...]
    arguments: str
    """Text in the parentheses: operands, or the value of a constant."""
    attributes: str
    """Text after the parentheses."""
    root: bool

    @property
    def size(self) -> int:
        """Size of the result in bytes."""
        return sum(shape.size for shape in self.shapes)

    @property
    def estimated_cycles(self) -> int:
        """XLA's estimate. 0 if it has none."""
        found = re.search(r'"estimated_cycles":"(\d+)"', self.attributes)
        return int(found.group(1)) if found and len(found.group(1)) < _SENTINEL_DIGITS else 0

    @property
    def op_name(self) -> str:
        """Path of the JAX primitives that it comes from."""
        return self.attribute(r'op_name="([^"]*)"') or ""

    @property
    def called(self) -> Mapping[str, str]:
        """Computations that it calls, by their role."""
        return {role: name for role, name in _CALLED.findall(self.attributes)}

    @property
    def branches(self) -> tuple[str, ...]:
        """Computations of a conditional, of which one runs."""
        found = _BRANCHES.search(self.attributes)
        named = tuple(_NAME.findall(found.group(1))) if found else ()
        return named + tuple(name for role, name in self.called.items() if role.endswith("_computation"))

    def attribute(self, pattern: str) -> str | None:
        """Return the first group of `pattern` in the attributes."""
        found = re.search(pattern, self.attributes)
        return found.group(1) if found else None


@dataclass(frozen=True)
class Computation:
    """Instructions in the order in which they run."""

    name: str
    entry: bool
    instructions: tuple[Instruction, ...]

    @cached_property
    def by_name(self) -> Mapping[str, Instruction]:
        return {instruction.name: instruction for instruction in self.instructions}

    @property
    def root(self) -> Instruction:
        return next(instruction for instruction in self.instructions if instruction.root)


@dataclass(frozen=True)
class Module:
    """A program for one chip."""

    computations: Mapping[str, Computation]
    """Computations, each after those that it calls. The entry is the last one."""
    partitions: int
    """Number of chips of a slice that run it together."""
    sources: "Sources"


@dataclass(frozen=True)
class Sources:
    """The tables of `stack_frame_id`, which map an instruction to the Python sources."""

    files: Mapping[int, str]
    functions: Mapping[int, str]
    locations: Mapping[int, tuple[int, int, int]]
    """File, function and line of each location."""
    frames: Mapping[int, tuple[int, int]]
    """Location and calling frame of each frame, as in the text."""

    def stack(self, instruction: Instruction) -> Iterator[tuple[str, str, int]]:
        """Yield file, function and line of each frame, innermost first, until a table has no entry."""
        frame = int(instruction.attribute(r"stack_frame_id=(\d{1,9})\b") or 0)
        unseen = {*self.frames}
        while frame in unseen:
            unseen.remove(frame)
            location, caller = self.frames[frame]
            file, function, line = self.locations.get(location, (0, 0, 0))
            if file not in self.files or function not in self.functions:
                return
            yield self.files[file], self.functions[function], line
            # The text gives the caller's line number in the table plus one. 1 means no caller.
            frame = caller - 1


def parse(text: str) -> Module:
    """Parse an HLO module.

    Raises:
        ValueError: the text is not an HLO module.
    """
    if not text.startswith("HloModule"):
        raise ValueError(f"expected an optimised HLO module, which begins with 'HloModule', got {text[:40]!r}")
    try:
        computations = _computations(text)
        partitions = re.search(r"num_partitions=(\d+)", text.partition("\n")[0])
        return Module(computations, int(partitions[1]) if partitions else 1, _sources(text))
    except ValueError as fault:
        raise ValueError(f"expected a whole HLO module, got a damaged one: {fault}; compile it again") from None


def _computations(text: str) -> dict[str, Computation]:
    computations: dict[str, Computation] = {}
    header, lines = None, []
    for line in text.splitlines():
        if header is None:
            header = _COMPUTATION.match(line)
        elif line == "}" or line.startswith("}, execution_thread="):
            computation = Computation(header[2], bool(header[1]), tuple(map(_instruction, lines)))
            if not any(instruction.root for instruction in computation.instructions):
                raise ValueError(f"computation {computation.name} has no root")
            computations[computation.name] = computation
            header, lines = None, []
        elif _INSTRUCTION.match(line) or not lines:
            lines.append(line)
        else:
            # Metadata of a kernel may contain line breaks.
            lines[-1] += line
    if header or not any(computation.entry for computation in computations.values()):
        raise ValueError(f"computation {header[2]} has no end" if header else "it has no entry")
    return computations


def shapes_in(text: str) -> tuple[Shape, ...]:
    """Return every array type in `text`, in order."""
    return tuple(
        Shape(element, tuple(int(size.lstrip("<= ")) for size in sizes.split(",") if size))
        for element, sizes in _SHAPE.findall(text)
    )


def _instruction(line: str) -> Instruction:
    head = _INSTRUCTION.match(line)
    end_of_type = _closing(line, head.end()) if head and line.startswith("(", head.end()) else 0
    opcode = _OPCODE.search(line, max(end_of_type, head.end())) if head else None
    if not head or not opcode:
        raise ValueError(f"expected an instruction of an HLO module, got {line[:200]!r}")
    close = _closing(line, opcode.end() - 1)
    arguments = line[opcode.end() : close]
    return Instruction(
        name=head[2],
        opcode=opcode[1],
        shapes=shapes_in(line[head.end() : opcode.start()]),
        operands=tuple(_NAME.findall(arguments)),
        arguments=arguments,
        attributes=line[close + 1 :],
        root=bool(head[1]),
    )


def _closing(line: str, start: int) -> int:
    """Return the index of the parenthesis that closes the one at `start`."""
    depth = 0
    for place in range(start, len(line)):
        depth += (line[place] == "(") - (line[place] == ")")
        if not depth:
            return place
    raise ValueError(f"unbalanced parentheses in {line[:200]!r}")


def _sources(text: str) -> Sources:
    def table(title: str) -> Iterable[tuple[int, str]]:
        found = re.search(rf"^{title}\n((?:\d+ .*\n)*)", text, re.MULTILINE)
        rows = found[1].splitlines() if found else ()
        return ((int(row.split(" ", 1)[0]), row.split(" ", 1)[1]) for row in rows)

    def number(row: str, field: str) -> int:
        found = re.search(rf"\b{field}=(\d+)", row)
        return int(found[1]) if found else 0

    return Sources(
        files={key: row.strip('"') for key, row in table("FileNames")},
        functions={key: row.strip('"') for key, row in table("FunctionNames")},
        locations={
            key: (number(row, "file_name_id"), number(row, "function_name_id"), number(row, "line"))
            for key, row in table("FileLocations")
        },
        frames={
            key: (number(row, "file_location_id"), number(row, "parent_frame_id")) for key, row in table("StackFrames")
        },
    )
