"""The chips of a JobSpec for the compiler, described by libtpu on a machine without TPUs."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

import jax
from jax.experimental import topologies

from workloads.spec import LIBTPU_VARIABLE, JobSpec, SliceSpec, rendered
from workloads.spec.chips import Unsupported, chip_of
from workloads.spec.compiler import Value
from workloads.training.mesh import Device

_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",  # There is no metadata server to ask which chips this machine has.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # Nothing is shared with another compilation.
    "TPU_LOG_DIR": "disabled",
}

_ADDED_BY_JAX = "xla_tpu_use_enhanced_launch_barrier"
"""Argument that JAX adds on machines with TPUs (jax/_src/cloud_tpu_init.py). It has to be set here too, because
arguments are part of the key of JAX's compilation cache."""

_LOAD = "from jax.experimental import topologies; topologies.get_topology_desc('v5e:2x2', 'tpu')"

_HOST_BOUNDS = {1: (1, 1, 1), 2: (1, 2, 1), 4: (2, 2, 1), 8: (2, 4, 1)}
"""Grid of the chips of a host, by their number."""


def check_arguments(spec: JobSpec) -> None:
    """Start libtpu with the job's arguments in another process, because it ends the process if one is wrong.

    Raises:
        Unsupported: libtpu refuses an argument.
    """
    if not spec.compiler.libtpu_args:
        return
    environment = {**os.environ, **_ENVIRONMENT, LIBTPU_VARIABLE: rendered(spec.libtpu_args)}
    done = subprocess.run([sys.executable, "-c", _LOAD], env=environment, capture_output=True, text=True)
    refusals = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
    if refusals:
        raise Unsupported(f"libtpu refuses libtpu_args of the job: {'; '.join(refusals)}")


def describe_devices(slices: SliceSpec, arguments: Mapping[str, Value]) -> Sequence[Device]:
    """Return descriptions of all devices of the job. Programs can be compiled for them but not run.

    libtpu starts with the `arguments` of the first call.

    Raises:
        Unsupported: libtpu is missing, or does not know the slice.
    """
    chip = chip_of(slices)
    if slices.chips_per_host not in _HOST_BOUNDS:
        raise Unsupported(
            f"hosts of {slices.chips_per_host} chips cannot be described to the compiler; expected"
            f" {', '.join(map(str, _HOST_BOUNDS))} chips"
        )
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ[LIBTPU_VARIABLE] = rendered({**arguments, _ADDED_BY_JAX: True})
    name = f"{chip.topology_prefix}:{slices.topology}"
    try:
        return topologies.get_topology_desc(
            topology_name=name,
            platform="tpu",
            num_slices=slices.count,
            chips_per_host_bounds=_HOST_BOUNDS[slices.chips_per_host],
            **({"chip_config_name": chip.config} if chip.config else {}),
        ).devices
    except jax.errors.JaxRuntimeError as fault:
        raise Unsupported(f"libtpu does not know {slices.count} slices of {name}: {fault}") from fault
    except (ImportError, RuntimeError, OSError) as fault:
        raise Unsupported(
            f"the TPU compiler did not load ({fault}); install it with: pip install 'tpu-multislice[trainer]'"
        ) from fault
