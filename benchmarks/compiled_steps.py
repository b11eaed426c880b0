"""Compiles the training step for TPUs with libtpu on this machine: `python -m benchmarks.compiled_steps [NAME ...]`.

Each row is one compilation in its own process, one after the other, with the estimate of `workloads.preflight` for the
program. `automatic` is the same model with the same shardings of weights and batch, but with the collectives chosen by
XLA's partitioner. Nothing runs on a TPU: the seconds are estimates, and the bytes are those of the program.
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from benchmarks import preflight_table
from benchmarks.designs import Design, Row
from workloads.preflight.compilation import Compilation, compile_for_account
from workloads.preflight.topology import describe_devices
from workloads.spec import JobSpec
from workloads.training.mesh import AXES, build_mesh
from workloads.training.step import Program


def compile_automatic(spec: JobSpec) -> Compilation:
    """Compile the step of `spec` with the collectives that XLA's partitioner chooses."""

    def compile_program(options: dict[str, Any]) -> jax.stages.Compiled:
        mesh = build_mesh(spec.mesh, spec.slices, describe_devices(spec.slices, spec.libtpu_args))
        program = Program(spec, mesh)
        shardings = jax.tree.map(lambda leaf: leaf.sharding, program.state_shapes)
        jitted = jax.jit(
            _on_one_part(program.local_step),
            in_shardings=(shardings, program.batch_sharding),
            out_shardings=(shardings, NamedSharding(mesh, PartitionSpec())),
            donate_argnums=0,
        )
        return jitted.lower(program.state_shapes, program.batch).compile(program.compiler_options | options)

    return compile_for_account(compile_program)


def _on_one_part(local: Callable[..., Any]) -> Callable[..., Any]:
    """Return `local` with every mesh axis of size 1."""

    def step(*arguments: Any) -> Any:
        mapped = local
        for axis in reversed(AXES):
            mapped = jax.vmap(mapped, in_axes=None, out_axes=0, axis_name=axis, axis_size=1)
        found = mapped(*arguments)
        return jax.tree.map(lambda leaf: leaf.reshape(leaf.shape[len(AXES) :]), found)

    return step


@dataclass(frozen=True)
class Variant:
    """A design of the table of preflights with changes."""

    design: str
    training: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Changed values of the section `training`."""
    automatic: bool = False


_1B, _8B, _8B_V5P = "llama-3.2-1b:v6e:4x4:2:4", "llama-3.1-8b:v6e:4x4:2:3", "llama-3.1-8b:v5p:4x4x4:2:4"
_FUSED, _SHORT = {"attention": "fused"}, {"sequence_length": 2048, "attention": "reference"}

VARIANTS = {
    "1b-v6e-fused": Variant(f"{_1B}:attention", _FUSED),
    "1b-v6e-fused-dots": Variant(f"{_1B}:dots", _FUSED),
    "8b-v6e-fused": Variant(f"{_8B}:attention", _FUSED),
    "8b-v5p-fused": Variant(f"{_8B_V5P}:attention", _FUSED),
    "8b-v5p-fused-dots": Variant(f"{_8B_V5P}:dots", _FUSED),
    "8b-v5e-fused": Variant("llama-3.1-8b:v5e:16x16:2:2:attention", _FUSED),
    "1b-v6e-short": Variant(f"{_1B}:attention", _SHORT),
    "1b-v6e-short-automatic": Variant(f"{_1B}:attention", _SHORT, automatic=True),
}
"""Variants that the table of preflights does not have, because all its designs use splash attention."""


def compile_variant(name: str) -> Row:
    """Compile a variant in this process, which should do nothing else after it."""
    variant = VARIANTS[name]
    compiled = compile_automatic if variant.automatic else None
    return preflight_table.compile_alone(Design.parse(variant.design), compiled, **variant.training)


def main() -> None:
    """Compile the given variants, or all, and print a row for each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compiled_steps", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(VARIANTS)} (default: all)")
    names = parser.parse_args().names
    print(preflight_table.HEAD)
    for name in names or VARIANTS:
        made = preflight_table.in_own_process(compile_variant, name)
        print(preflight_table.line(name, made), flush=True)


if __name__ == "__main__":
    main()
