"""Calculates what a program computes: cycles by XLA's estimate, and FLOPs of its matmuls and kernels.

Cycles are listed by instruction and by source line.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from math import prod

from workloads.preflight.hlo import Computation, Instruction, Module
from workloads.preflight.loops import Schedule
from workloads.training.remat import KEYS_SCOPE

_FLOPS = re.compile(r'"cost_estimate":\{[^}]*"flops":"(\d+)"')
_WINDOWED = re.compile(rf"\b{KEYS_SCOPE}(\d+)\b")
_KERNEL_TARGET = 'custom_call_target="tpu_custom_call"'
_GROUPED = re.compile(r"\bragged-dot\b|\(t?gmm\)")
"""Names of kernels of grouped products: libtpu's for `jax.lax.ragged_dot`, and those of JAX's megablox."""
_LIBRARIES = ("/site-packages/", "/lib/python", "<")
"""Parts of the paths of source files that do not belong to the job."""

_WORKS_ON_MEMORY = {"call-done", "copy", "dynamic-update-slice", "fusion", "gather", "scatter", "sort"}
"""Opcodes that take time in proportion to their result; `call-done` ends what a SparseCore did."""

_NOTABLE_BYTES = 1 << 20


@dataclass(frozen=True)
class Operation:
    """One instruction that takes time."""

    name: str
    opcode: str
    result: str
    times: int
    cycles: int
    """Cycles of one run."""
    matmul_flops: int
    """FLOPs of its matmuls in one run."""
    source: str
    """Function and line that it comes from."""
    op_name: str

    @property
    def phase(self) -> str:
        return phase_of(self.op_name)


@dataclass(frozen=True)
class Kernel:
    """One call of a Pallas kernel."""

    name: str
    times: int
    flops: int | None
    """FLOPs of one run. `None` if neither the call nor the shapes determine them."""
    basis: str
    """Source of `flops`."""
    op_name: str

    @property
    def grouped(self) -> bool:
        """Whether it multiplies each group of rows by a matrix of its own, as experts do. Others are attention."""
        return bool(_GROUPED.search(self.op_name))


def phase_of(op_name: str) -> str:
    """Return the part of a step that an instruction belongs to by the differentiation of the program."""
    if "rematted_computation" in op_name:
        return "recompute"
    if "transpose(" in op_name:
        return "backward"
    return "forward" if "jvp(" in op_name else "other"


def operations(module: Module, schedule: Schedule) -> tuple[Operation, ...]:
    """Return every instruction that has an estimate of cycles or contains a matmul. A fusion includes its parts."""
    found = (
        _operation(module, computation, instruction, runs.times)
        for runs, computation, instruction in schedule.instructions(module)
        if not runs.fused
    )
    return tuple(each for each in found if each.cycles or each.matmul_flops)


def unpriced(module: Module, schedule: Schedule) -> tuple[Operation, ...]:
    """Return the instructions that write a megabyte or more and have no estimate of cycles, such as a scatter."""
    return tuple(
        _operation(module, computation, instruction, runs.times)
        for runs, computation, instruction in schedule.instructions(module)
        if not runs.fused
        and instruction.opcode in _WORKS_ON_MEMORY
        and not instruction.estimated_cycles
        and instruction.size >= _NOTABLE_BYTES
    )


def kernels(module: Module, schedule: Schedule) -> tuple[Kernel, ...]:
    """Return every Pallas kernel that runs."""
    return tuple(
        Kernel(call.name, runs.times, *_kernel_flops(computation, call), call.op_name)
        for runs, computation, call in schedule.instructions(module)
        if call.opcode == "custom-call" and _KERNEL_TARGET in call.attributes
    )


def _operation(module: Module, computation: Computation, instruction: Instruction, times: int) -> Operation:
    return Operation(
        name=instruction.name,
        opcode=instruction.opcode,
        result=" ".join(map(str, instruction.shapes)),
        times=times,
        cycles=instruction.estimated_cycles,
        matmul_flops=_matmul_flops(module, computation, instruction),
        source=source_of(module, instruction),
        op_name=instruction.op_name,
    )


def _kernel_flops(computation: Computation, call: Instruction) -> tuple[int | None, str]:
    if stated := _FLOPS.search(call.attributes):
        return int(stated[1]), "the kernel's cost estimate"
    if "splash_" in call.op_name:
        return _splash_flops(computation, call)
    return None, "neither a cost estimate nor a known kernel"


def _splash_flops(computation: Computation, call: Instruction) -> tuple[int | None, str]:
    """Return the FLOPs of JAX's splash attention, which has no cost estimate.

    The forward pass has 2 matmuls of 2 S S H FLOPs for each query head, half of which the causal mask needs. The
    gradients by keys and values have 4, those by queries 3, both at once 5. With a window, the name of the scope has
    the number of keys for each block of queries.
    """
    matrices = [
        shape
        for operand in call.operands
        for shape in computation.by_name[operand].shapes
        # JAX leaves out dimensions of size 1 that it maps over: keys of one sequence and one head have two dimensions.
        if len(shape.dimensions) >= 2 and shape.element in ("bf16", "f32") and shape.dimensions[-1] >= 64
    ]
    if len(matrices) < 2:
        return None, "splash attention without arrays of heads"
    # The two innermost dimensions may come in either order. The larger one is the positions.
    heads, (size, queries) = matrices[0].dimensions[:-2], sorted(matrices[0].dimensions[-2:])
    keys = max(matrices[1].dimensions[-2:])
    matmuls = 2
    if "_dkv" in call.op_name:
        matmuls = 5 if len(call.shapes) > 2 else 4
    elif "_dq" in call.op_name:
        matmuls = 3
    if window := _WINDOWED.search(call.op_name):
        flops = 2 * matmuls * prod(heads) * queries * int(window[1]) * size
        return flops, f"{matmuls} matmuls of splash attention with {window[1]} keys for each query"
    return matmuls * prod(heads) * queries * keys * size, f"causal, {matmuls} matmuls of the shapes of splash attention"


def source_of(module: Module, instruction: Instruction) -> str:
    """Return function and line in the job's sources, or else the last part of the JAX name."""
    for file, function, line in module.sources.stack(instruction):
        if not any(part in file for part in _LIBRARIES):
            return f"{function.replace('<locals>.', '')}:{line}"
    return instruction.op_name.rsplit("/", 1)[-1] or instruction.opcode


def _matmul_flops(module: Module, computation: Computation, instruction: Instruction) -> int:
    if instruction.opcode == "convolution":
        return _convolution_flops(computation, instruction)
    if instruction.opcode == "dot":
        contracted = instruction.attribute(r"lhs_contracting_dims=\{([\d,]*)\}") or ""
        left = computation.by_name[instruction.operands[0]].shapes[0].dimensions
        return 2 * instruction.shapes[0].elements * prod(left[int(each)] for each in contracted.split(",") if each)
    called = instruction.called.get("calls")
    if called is None:
        return 0
    inner = module.computations[called]
    return sum(_matmul_flops(module, inner, each) for each in inner.instructions)


def _convolution_flops(computation: Computation, convolution: Instruction) -> int:
    """Return the FLOPs of a convolution. TPU programs write every matmul as one, with batch dimensions as dilated
    spatial dimensions."""
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", convolution.attributes)
    assert labels, convolution.name
    left, right = (computation.by_name[name].shapes[0].dimensions for name in convolution.operands[:2])
    result = convolution.shapes[0].dimensions
    flops = 2 * result[labels[3].index("b")] * result[labels[3].index("f")] * right[labels[2].index("i")]
    # Fields of the window with a number for each spatial dimension, or two for `pad`.
    fields = re.findall(r"(\w+)=(\S+)", convolution.attribute(r"window=\{([^}]*)\}") or "")
    window = {field: [int(number) for number in re.findall(r"-?\d+", values)] for field, values in fields}
    for place, label in enumerate(sorted(set(labels[2]) - set("io"))):
        flops *= _pairs(
            left[labels[1].index(label)],
            result[labels[3].index(label)],
            window["size"][place],
            window["stride"][place] if "stride" in window else 1,
            window["pad"][2 * place] if "pad" in window else 0,
            window["lhs_dilate"][place] if "lhs_dilate" in window else 1,
            window["rhs_dilate"][place] if "rhs_dilate" in window else 1,
        )
    return flops


@cache
def _pairs(inputs: int, outputs: int, size: int, stride: int, pad: int, dilation: int, kernel_dilation: int) -> int:
    """Return the number of multiplications along one spatial dimension that use an input, not padding or a gap."""
    reach = range(0, inputs * dilation, dilation)
    return sum(
        output * stride - pad + tap * kernel_dilation in reach for output in range(outputs) for tap in range(size)
    )


def by_source(found: Iterable[Operation]) -> list[tuple[str, str, int, int]]:
    """Return phase, source, cycles and matmul FLOPs of a step by source line, most cycles first."""
    groups: dict[tuple[str, str], tuple[int, int]] = {}
    for each in found:
        cycles, flops = groups.get((each.phase, each.source), (0, 0))
        groups[each.phase, each.source] = (cycles + each.times * each.cycles, flops + each.times * each.matmul_flops)
    rows = [(phase, source, cycles, flops) for (phase, source), (cycles, flops) in groups.items()]
    return sorted(rows, key=lambda row: -row[2])
