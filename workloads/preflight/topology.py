"""Devices that are not there: the chips of a JobSpec as libtpu describes them to the compiler.

Owns the environment that libtpu needs on a machine without TPUs, and its names of topologies.
"""

import os
from collections.abc import Sequence

import jax
from jax.experimental import topologies

from workloads.preflight.chips import Unsupported, chip_of
from workloads.spec import SliceSpec
from workloads.training.mesh import Device

_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",  # There is no metadata server to ask which chips this machine has.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # Nothing is shared with another compilation.
    "TPU_LOG_DIR": "disabled",
    # What JAX adds where there are TPUs (jax/_src/cloud_tpu_init.py): part of the key of its compilation cache.
    "LIBTPU_INIT_ARGS": "--xla_tpu_use_enhanced_launch_barrier=true",
}

_HOST_BOUNDS = {1: (1, 1, 1), 2: (1, 2, 1), 4: (2, 2, 1), 8: (2, 4, 1)}
"""How the chips of a host lie, by their number."""


def describe_devices(slices: SliceSpec) -> Sequence[Device]:
    """Stand-ins for all devices of the job; programs can be compiled for them, and not run.

    Raises:
        Unsupported: libtpu is missing, or does not know the slice.
    """
    chip = chip_of(slices)
    if slices.chips_per_host not in _HOST_BOUNDS:
        raise Unsupported(
            f"hosts of {slices.chips_per_host} chips cannot be described to the compiler; of"
            f" {', '.join(map(str, _HOST_BOUNDS))} chips they can"
        )
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
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
            f"the TPU compiler did not load ({fault}); install it with: pip install 'tpu-multislice[tpu]'"
        ) from fault
