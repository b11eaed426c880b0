"""Compiles the trainer's step with the collectives chosen by XLA's partitioner, for comparison.

The model's functions use names of mesh axes. Here each is an axis of size 1 that jax.vmap provides, and jit gets the
shardings of weights and batch.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from workloads.preflight.topology import describe_devices
from workloads.spec import JobSpec
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
