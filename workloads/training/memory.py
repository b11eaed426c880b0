"""What to say when a step does not fit the chips.

Owns the recognition of the error and the advice; what a step will need is not predicted here.
"""

import math
from collections.abc import Generator
from contextlib import contextmanager

import jax

from workloads.spec import JobSpec
from workloads.training.failures import OutOfMemory, is_out_of_memory
from workloads.training.step import TrainState

_GIB = 2**30


@contextmanager
def fitting(spec: JobSpec, state: TrainState) -> Generator[None]:
    """Turn a device's or the compiler's lack of memory into OutOfMemory; `state` tells the shapes."""
    try:
        yield
    except Exception as error:
        if is_out_of_memory(error):
            raise OutOfMemory(f"{advice(spec, bytes_per_device(state))} ({str(error).splitlines()[0]})") from error
        raise


def bytes_per_device(state: TrainState) -> int:
    """What the training state alone takes on each device."""
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(state)
    )


def advice(spec: JobSpec, state_bytes: int) -> str:
    """One sentence: what does not fit, and what would. Layers are recomputed already, so nothing is left there."""
    batch, devices = spec.training.global_batch, spec.slices.devices
    have = spec.slices.hbm_gib_per_chip / spec.slices.devices_per_chip
    need = state_bytes / _GIB
    bigger = f"take slices of more chips than {spec.slices.topology}"
    if have and need >= have:
        change = f"{bigger}, at least {math.ceil(need / have)} times as many"
    elif batch > devices:
        change = f"set training.global_batch to {max(batch // devices // 2, 1) * devices} or {bigger}"
    else:
        change = f"{bigger} or shorten training.sequence_length ({spec.training.sequence_length})"
    memory = f" of {have:.1f} GiB" if have else ""
    return (
        f"the step does not fit the memory of a device: the training state takes {need:.2f} GiB{memory}"
        f" and a batch of {batch // devices} sequences per device the rest; {change}"
    )
