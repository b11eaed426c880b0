"""Recognises that a step does not fit the chips, and advises what to change. It predicts no memory."""

import math
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, get_args

import jax

from workloads.spec import JobSpec, Remat
from workloads.training.failures import OutOfMemory, is_out_of_memory, is_out_of_vmem
from workloads.training.step import TrainState

_GIB = 2**30


@contextmanager
def fitting(spec: JobSpec, state: TrainState) -> Generator[None]:
    """Convert an out-of-memory error of a device or the compiler to OutOfMemory. `state` has the shapes."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        said = _advice_on_vmem(spec) if is_out_of_vmem(error) else advice(spec, bytes_per_device(state))
        raise OutOfMemory(f"{said} ({' '.join(str(error).splitlines()[:2])})") from error


def bytes_per_device(state: TrainState) -> int:
    """Return the bytes of the training state on each device."""
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(state)
    )


def advice(spec: JobSpec, state_bytes: int) -> str:
    """Return a sentence about what does not fit and what to change."""
    have = spec.slices.hbm_gib_per_chip / spec.slices.devices_per_chip
    need = state_bytes / _GIB
    memory = f" of {have:.1f} GiB" if have else ""
    if have and need >= have:
        changes = _smaller_state(spec, math.ceil(need / have))
    else:
        settings = [f"set training.{name} to {values[0]}" for name, values in smaller_steps(spec).items() if values]
        changes = [*settings, f"take slices of more chips than {spec.slices.topology}"]
    return (
        f"the step does not fit the memory of a device: the training state takes {need:.2f} GiB{memory} and"
        f" {spec.rows_at_once} sequences at once the rest; {', or '.join(changes)}"
    )


def _advice_on_vmem(spec: JobSpec) -> str:
    other_kernel = [] if spec.training.attention == "splash" else ["set training.attention to splash"]
    changes = [*other_kernel, "shorten training.sequence_length"]
    return f"a kernel of the step does not fit the fast memory (VMEM) of a chip; {', or '.join(changes)}"


def _smaller_state(spec: JobSpec, times: int) -> list[str]:
    """Return changes that make the training state smaller. It is split over all mesh axes except `replica`."""
    bigger = f"take slices of more chips than {spec.slices.topology}, at least {times} times as many"
    in_slice = spec.mesh.replica // spec.slices.count
    return [*([f"raise mesh.fsdp, of which a slice has room for {in_slice} times"] if in_slice > 1 else []), bigger]


def smaller_steps(spec: JobSpec) -> dict[str, list[Any]]:
    """Return values of training settings that reduce memory other than the state, by setting, the cheapest first.

    The values of a setting begin with the least change. A run can continue with any.
    """
    training, sequences = spec.training, spec.rows_per_device
    may_gather_later = training.gather_weights == "each-step" and spec.mesh.stage == 1
    return {
        "accumulation": [parts for parts in range(training.accumulation + 1, sequences + 1) if sequences % parts == 0],
        # Policies that need less memory of a device than the job's, the one that needs most first.
        "remat": [*get_args(Remat)[get_args(Remat).index(training.remat) + 1 :]],
        "gather_weights": ["each-layer"] if may_gather_later else [],
        "attention": ["splash"] if training.attention == "reference" else [],
    }
