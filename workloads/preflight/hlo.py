"""An optimised HLO module, read from its text.

Owns the grammar: shapes, instructions, computations, source locations. What the instructions mean, how
often they run and what they cost is asked elsewhere. Pure.

The text is that of `jax.stages.Compiled.as_text()`: scheduled, one instruction after the other.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

_BITS = {"pred": 8, "token": 0, "opaque": 0, "c64": 64, "c128": 128}
"""Element types whose size is not in their name."""

_SHAPE = re.compile(r"\b([a-z][a-z0-9]*)\[([0-9,<= ]*)\]")
_NAME = re.compile(r"%([\w.\-]+)")
_INSTRUCTION = re.compile(r"  (ROOT )?%?([\w.\-]+) = ")
_OPCODE = re.compile(r" ([a-z][\w\-]*)\(")
_COMPUTATION = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*\{$")
_CALLED = re.compile(r"\b(calls|body|condition|to_apply|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"\bbranch_computations=\{([^}]*)\}")
_SENTINEL_DIGITS = 15
"""From so many digits on, `estimated_cycles` says that XLA has no estimate: it is near the largest int64."""


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
        """Bytes, unpadded."""
        return self.elements * _bits(self.element) // 8

    def __str__(self) -> str:
        return f"{self.element}[{','.join(map(str, self.dimensions))}]"


def _bits(element: str) -> int:
    digits = re.search(r"\d+", element)
    return _BITS[element] if element in _BITS else int(digits.group()) if digits else 0


@dataclass(frozen=True)
class Instruction:
    """One line of a computation."""

    name: str
    opcode: str
    shapes: tuple[Shape, ...]
    """Of the result; a tuple is flattened."""
    operands: tuple[str, ...]
    arguments: str
    """What stands in the parentheses: operands, or the value of a constant."""
    attributes: str
    """All that follows."""
    root: bool

    @property
    def size(self) -> int:
        """Bytes of the result."""
        return sum(shape.size for shape in self.shapes)

    @property
    def estimated_cycles(self) -> int:
        """XLA's own estimate; 0 where it has none."""
        found = re.search(r'"estimated_cycles":"(\d+)"', self.attributes)
        return int(found.group(1)) if found and len(found.group(1)) < _SENTINEL_DIGITS else 0

    @property
    def op_name(self) -> str:
        """The path of JAX primitives that it comes from."""
        return self.attribute(r'op_name="([^"]*)"') or ""

    @property
    def called(self) -> Mapping[str, str]:
        """Computations that it names, by the role they play."""
        return {role: name for role, name in _CALLED.findall(self.attributes)}

    @property
    def branches(self) -> tuple[str, ...]:
        """Computations of which one runs."""
        found = _BRANCHES.search(self.attributes)
        named = tuple(_NAME.findall(found.group(1))) if found else ()
        return named + tuple(name for role, name in self.called.items() if role.endswith("_computation"))

    def attribute(self, pattern: str) -> str | None:
        """The first group of `pattern` in the attributes."""
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
    """Each after those that it calls; the entry is the last."""
    partitions: int
    """Chips of a slice that run it together."""
    sources: "Sources"


@dataclass(frozen=True)
class Sources:
    """The tables behind `stack_frame_id`: where in the Python sources an instruction comes from."""

    files: Mapping[int, str]
    functions: Mapping[int, str]
    locations: Mapping[int, tuple[int, int, int]]
    """File, function, line."""
    frames: Mapping[int, tuple[int, int]]
    """Location, and calling frame as the text writes it."""

    def stack(self, instruction: Instruction) -> Iterator[tuple[str, str, int]]:
        """File, function and line of each frame, innermost first; it ends where a table does not go on."""
        frame = int(instruction.attribute(r"stack_frame_id=(\d{1,9})\b") or 0)
        unseen = {*self.frames}
        while frame in unseen:
            unseen.remove(frame)
            location, caller = self.frames[frame]
            file, function, line = self.locations.get(location, (0, 0, 0))
            if file not in self.files or function not in self.functions:
                return
            yield self.files[file], self.functions[function], line
            # Callers are written one higher than the number of their line in the table; 1 stands for none.
            frame = caller - 1


def parse(text: str) -> Module:
    """The module that `text` is.

    Raises:
        ValueError: the text is no HLO module.
    """
    if not text.startswith("HloModule"):
        raise ValueError(f"an optimised HLO module begins with 'HloModule', this text with {text[:40]!r}")
    try:
        computations = _computations(text)
        partitions = re.search(r"num_partitions=(\d+)", text.partition("\n")[0])
        return Module(computations, int(partitions[1]) if partitions else 1, _sources(text))
    except ValueError as fault:
        raise ValueError(f"expected a whole HLO module, got one that is damaged: {fault}; compile it anew") from None


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
            # Metadata of a kernel may hold line breaks.
            lines[-1] += line
    if header or not any(computation.entry for computation in computations.values()):
        raise ValueError(f"computation {header[2]} has no end" if header else "it has no entry")
    return computations


def shapes_in(text: str) -> tuple[Shape, ...]:
    """Every array type in `text`, in order."""
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
    """Place of the parenthesis that closes the one at `start`."""
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
