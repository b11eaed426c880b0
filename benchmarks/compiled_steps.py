"""Compiles the training step for TPUs with libtpu on this machine: `python -m benchmarks.compiled_steps [NAME ...]`.

Each row is one compilation in its own process, one after the other, with the estimate of `workloads.preflight` for the
program. `automatic` is the same model with the same shardings of weights and batch, but with the collectives chosen by
XLA's partitioner. Nothing runs on a TPU: the seconds are estimates, and the bytes are those of the program.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from benchmarks import preflight_table
from infra.plan import Design, Row
from workloads.preflight.topology import describe_devices
from workloads.spec import CompilerSpec, JobSpec
from workloads.training.mesh import AXES, build_mesh
from workloads.training.step import Program


def compile_automatic(spec: JobSpec, options: dict[str, Any]) -> jax.stages.Compiled:
    """Return the compiled step of `spec` with XLA's partitioning. `options` are additional compiler options."""
    mesh = build_mesh(spec.mesh, spec.slices, describe_devices(spec.slices, spec.libtpu_args))
    program = Program(spec, mesh)
    step = _on_one_part(program.local_step)
    shardings = jax.tree.map(lambda leaf: leaf.sharding, program.state_shapes)
    whole = NamedSharding(mesh, PartitionSpec())
    jitted = jax.jit(
        step,
        in_shardings=(shardings, program.batch_sharding),
        out_shardings=(shardings, whole),
        donate_argnums=0,
    )
    return jitted.lower(program.state_shapes, program.batch).compile(program.compiler_options | options)


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
    compiler: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Changed values of `CompilerSpec`."""
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


def job(variant: Variant) -> JobSpec:
    """Return the specification of a variant."""
    spec = preflight_table.job(Design.parse(variant.design), **variant.training)
    return spec.model_copy(update={"compiler": CompilerSpec(**variant.compiler)})


def compile_alone(name: str) -> dict[str, Any]:
    """Compile in this process, which should do nothing else after it."""
    from workloads.preflight.compilation import compile_for_account
    from workloads.preflight.preflight import compile_step, report_on
    from workloads.spec.chips import chip_of

    variant = VARIANTS[name]
    spec = job(variant)
    automatic = partial(compile_automatic, spec)
    compilation = compile_for_account(automatic) if variant.automatic else compile_step(spec)
    report = json.loads(report_on(spec, compilation.text, compilation).as_json())
    return report | {"usable_gib": chip_of(spec.slices).usable_hbm_gib_per_device}


def compile_variant(name: str) -> Row:
    """Compile a variant in its own process and return its row."""
    command = [sys.executable, "-m", "benchmarks.compiled_steps", "--alone", name]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    report = json.loads(done.stdout.splitlines()[-1])
    return preflight_table.row(Design.parse(VARIANTS[name].design), report)


def main() -> None:
    """Compile the given variants, or all, and print a row for each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compiled_steps", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(VARIANTS)} (default: all)")
    parser.add_argument("--alone", metavar="NAME", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        print(json.dumps(compile_alone(options.alone)))
        return
    print(preflight_table.HEAD)
    for name in options.names or VARIANTS:
        print(preflight_table.line(name, compile_variant(name)), flush=True)


if __name__ == "__main__":
    main()
