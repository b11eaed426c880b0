"""Calculates what the slices of a job send each other in a step, with `slice_failure: restart` and with `continue`.

It is arithmetic on the specification: nothing is compiled, and nothing was measured.
"""

from workloads.spec.base import Spec
from workloads.spec.chips import Unsupported, dcn_bytes_per_second
from workloads.spec.job import JobSpec
from workloads.spec.parameters import trained_parameters

_BYTES = {"float32": 4, "bfloat16": 2}
"""Bytes of an element by `training.compute_dtype`."""


class BetweenSlices(Spec):
    """One sum of gradients over the slices, and how long a step waits for it.

    Of n slices, a host sends 2 (n - 1) / n times its gradients. With `restart`, chips send them within the compiled
    step, around a ring. With `continue`, hosts send the parts of each block to the slice that sums it, which sends the
    sum to all (`workloads.group.sums`). So bytes and seconds of one sum are the same.
    """

    slices: int
    parameters: int
    """Number of weights that are trained, and of their gradients."""
    wire: str
    """Type in which gradients are sent."""
    host_bytes: float
    """Bytes of the gradients on the devices of one host."""
    sent_bytes: float
    """Bytes that a host sends for one sum. It receives as many at the same time."""
    bytes_per_second: float
    """Rate of a host to other slices: that of its chips (`workloads.spec.chips`)."""
    sync_every: int
    """Number of steps between two sums with `continue`. With `restart`, each step has one."""
    restart_seconds: float
    """Seconds of the sum of a step with `restart`. Most of them overlap with the backward pass."""
    restart_exposed_seconds: float | None
    """Seconds of it in which the compiled step waits. `None` if the step was not compiled for `restart`."""
    continue_seconds: float
    """Seconds of a step in which it waits for the sum with `continue`: all of them, because the hosts begin when the
    devices have computed the gradients. With `sync_every` from 2 on, it is the mean over the steps."""
    more_seconds: float
    """Seconds that a step with `continue` takes longer than one with `restart`. This is the largest possible value if
    `restart_exposed_seconds` is `None`."""


def between_slices(spec: JobSpec, exposed_seconds: float | None) -> BetweenSlices | None:
    """Return what the slices of a job send each other.

    `exposed_seconds` is what the step waits for other slices if it was compiled with `slice_failure: restart`. The
    result is `None` if the job has one slice, if its slices cannot train without each other, or if their rate is
    unknown.
    """
    count, training = spec.slices.count, spec.training
    if count == 1 or spec.mesh.replica % count:
        return None
    try:
        rate = dcn_bytes_per_second(spec.slices) * spec.slices.devices_per_host
    except Unsupported:
        return None
    parameters = trained_parameters(spec.model, training.lora)
    whole = parameters * _BYTES[training.compute_dtype]
    held = whole * spec.mesh.share_of_host(spec.slices.devices_per_host)
    sent = 2 * (count - 1) / count * held
    seconds = sent / rate
    return BetweenSlices(
        slices=count,
        parameters=parameters,
        wire=training.compute_dtype,
        host_bytes=held,
        sent_bytes=sent,
        bytes_per_second=rate,
        sync_every=training.sync_every,
        restart_seconds=seconds,
        restart_exposed_seconds=exposed_seconds,
        continue_seconds=seconds / training.sync_every,
        more_seconds=seconds / training.sync_every - (exposed_seconds or 0.0),
    )


def summed_by_hosts(spec: JobSpec) -> BetweenSlices | None:
    """Return what the hosts of a job with `slice_failure: continue` send each other.

    The result is `None` as in `between_slices`, and for every other job, whose chips send it within the step.
    """
    return between_slices(spec, None) if spec.slice_failure == "continue" else None
