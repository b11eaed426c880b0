"""Options of the TPU compiler and arguments of the TPU runtime: one table by generation, and a job's changes to it.

The trainer, the preflight and the pod's environment all read this table. `tests/workloads/preflight/test_compiler.py`
checks each row against libtpu. No row was measured on a TPU.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import AfterValidator, StrictBool, StrictFloat, StrictInt, StrictStr, StringConstraints

from workloads.spec.base import Spec
from workloads.spec.slices import SliceSpec

type Value = bool | int | float | str

_AXLEARN = "https://github.com/apple/axlearn/blob/main/axlearn/common/compiler_options.py"
_MAXTEXT = "https://github.com/AI-Hypercomputer/maxtext/blob/main/benchmarks/xla_flags_library.py"
_MAXTEXT_GUIDE = (
    "https://github.com/AI-Hypercomputer/maxtext/blob/main/docs/guides/optimization/benchmark_and_performance.md"
)
_RECIPES = "https://github.com/AI-Hypercomputer/tpu-recipes/tree/main/training/ironwood"
_HANGS = (
    "https://github.com/AI-Hypercomputer/maxtext/blob/main/docs/guides/monitoring_and_debugging/"
    "megascale_hang_playbook.md"
)

LIBTPU_VARIABLE = "LIBTPU_INIT_ARGS"
"""Environment variable that libtpu reads its arguments from. JAX adds one of its own."""

VMEM = "xla_tpu_scoped_vmem_limit_kib"
"""Fast memory in KiB that one fusion may use. More makes matrix products faster and compilation slower."""


DEFAULT_VMEM_KIB = 16 << 10
"""The compiler's own value of VMEM, where a job has none."""


@dataclass(frozen=True)
class Row:
    """One option with its values by generation and the reason."""

    option: str
    values: Mapping[str, Value]
    why: str
    source: str
    quick: Mapping[str, Value] = field(default_factory=dict[str, Value])
    """Values that replace those of `values` if the job has `compile: quick`."""


COMPILER_OPTIONS = (
    Row(
        VMEM,
        {"v5e": 32768, "v5p": 32768, "v6e": 98304, "7x": 65536},
        "Estimated share of the peak that an MLP's products reach: v5e 0.75 by default and 0.96 at 32768; v5p 0.80 and"
        " 0.97, and 0.99 at 65472, which takes five times as long to compile; v6e 0.59, 0.83 at 65536, and more at"
        " 98304, which takes twice as long again. 7x has the value of axlearn; Google's recipes use it or 61440.",
        f"{_AXLEARN}, {_RECIPES}",
        quick={"v6e": 65536},
    ),
    Row(
        "xla_tpu_enable_sparse_core_collective_offload_all_gather",
        {"v5p": True, "v6e": True},
        "The SparseCore gathers the weights of a layer while the TensorCore computes; without it the program waits."
        " libtpu does the same on 7x by default, and v5e has no SparseCore.",
        _MAXTEXT,
    ),
    Row(
        "xla_tpu_enable_sparse_core_collective_offload_2d_all_gather",
        {"v6e": True},
        "The same over a torus of two dimensions: without it the program waits on slices of 8x8 chips or more.",
        _RECIPES,
    ),
    Row(
        "xla_tpu_enable_sparse_core_collective_offload_3d_all_gather",
        {"v5p": True},
        "The same over a torus of three dimensions. Without it libtpu gathers by an all-reduce of the zero-padded"
        " matrix, which sends twice the bytes. axlearn and MaxText set it on 7x.",
        f"{_AXLEARN}, {_MAXTEXT_GUIDE}",
    ),
    Row(
        "xla_tpu_prefer_async_allgather_to_allreduce",
        {"v5p": True},
        "Keeps such a gather from becoming an all-reduce. axlearn and MaxText set it on 7x.",
        f"{_AXLEARN}, {_MAXTEXT_GUIDE}",
    ),
)

MULTISLICE_ARGUMENTS = (
    Row(
        "megascale_grpc_premap_memory_bytes",
        {"v5p": 16 << 30, "v6e": 16 << 30, "7x": 16 << 30},
        "Host memory reserved for transfers between slices. axlearn reports steps twice as long with the default"
        " of 4 GiB, which is also what a host with four chips sends in one step of Llama-3.1-8B.",
        _AXLEARN,
    ),
    Row(
        "megascale_grpc_enable_xor_tracer",
        {"v4": False, "v5e": False, "v5p": False, "v6e": False, "7x": False},
        "The tracer leaks memory.",
        _AXLEARN,
    ),
    Row(
        "megascale_graph_hang_threshold",
        {"v4": "30m", "v5e": "30m", "v5p": "30m", "v6e": "30m", "7x": "30m"},
        "Time after which the runtime reports a hang, by default 5 minutes. A host that restores or compiles for longer"
        " than the others is not a hang; `training.step_timeout_minutes` ends a real one earlier.",
        _HANGS,
    ),
    Row(
        "megascale_graph_within_launch_hang_threshold",
        {"v4": "30m", "v5e": "30m", "v5p": "30m", "v6e": "30m", "7x": "30m"},
        "The same within one launch of a program, by default 1 minute.",
        _AXLEARN,
    ),
)
"""Arguments of libtpu, which reads them only from its environment. Only jobs on several slices get them."""


def _one_word(value: object) -> object:
    if isinstance(value, str) and value.split() != [value]:
        raise ValueError("a value must be one word without spaces")
    return value


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")]
Changes = Mapping[Name, Annotated[StrictBool | StrictInt | StrictFloat | StrictStr, AfterValidator(_one_word)] | None]


class CompilerSpec(Spec):
    """A job's changes to the table of compiler options."""

    compile: Literal["full", "quick"] = "full"
    """Effort of the compiler. On v6e, `quick` halves the processor time of compiling and makes steps slower; see
    `docs/reference/compiler.md`. On other generations, the two are the same."""
    compiler_options: Changes = {}
    """Options of the TPU compiler, such as `xla_tpu_scoped_vmem_limit_kib: 65536`, that replace or extend those of the
    project's table. `null` removes one of them."""
    libtpu_args: Changes = {}
    """Arguments of libtpu, such as `megascale_graph_hang_threshold: 60m`, that replace or extend those of the project's
    table. Pods get them in LIBTPU_INIT_ARGS."""

    def options_for(self, slices: SliceSpec) -> dict[str, Value]:
        """Return the options that the job's programs are compiled with."""
        quick = self.compile == "quick"
        return _resolve(COMPILER_OPTIONS, slices.generation, quick, self.compiler_options)

    def libtpu_args_for(self, slices: SliceSpec) -> dict[str, Value]:
        """Return the arguments that libtpu starts with."""
        rows = MULTISLICE_ARGUMENTS if slices.count > 1 else ()
        return _resolve(rows, slices.generation, False, self.libtpu_args)


def rendered(arguments: Mapping[str, Value]) -> str:
    """Return the value of LIBTPU_INIT_ARGS."""
    texts = {name: str(value).lower() if isinstance(value, bool) else value for name, value in arguments.items()}
    return " ".join(f"--{name}={text}" for name, text in texts.items())


def _resolve(
    rows: Iterable[Row], generation: str, quick: bool, changes: Mapping[str, Value | None]
) -> dict[str, Value]:
    defaults = {
        row.option: (row.quick if quick and generation in row.quick else row.values)[generation]
        for row in rows
        if generation in row.values
    }
    return {name: value for name, value in {**defaults, **changes}.items() if value is not None}
