"""Connects the head of a call with the chips of all hosts, by Google's package pathwaysutils."""

from importlib import import_module
from typing import Any

import jax

from workloads.spec import CallSpec, SliceSpec
from workloads.training.failures import InvalidSpec, NoDevices
from workloads.training.runtime import Processes

HEAD_HOST = "head-0-0"
"""Name of the head within its job."""


def head_of(slices: SliceSpec) -> SliceSpec:
    """Return the head's own view of the slices: one process, which has the devices of all hosts."""
    return slices.model_copy(
        update={"count": 1, "hosts": 1, "chips_per_host": slices.total_hosts * slices.chips_per_host}
    )


def connect(spec: CallSpec, processes: Processes) -> None:
    """Connect JAX with the proxy of Pathways and wait until the devices of all hosts are there.

    Raises:
        InvalidSpec: the image has no pathwaysutils.
        NoDevices: the proxy does not answer, or has other devices than those of the slices.
    """
    processes.deadline.expect("the connection to Pathways", spec.start_minutes)
    try:
        # Not at the top: only the head of Pathways needs it.
        utils: Any = import_module("pathwaysutils")
    except ImportError as error:
        raise InvalidSpec(
            f"backend='pathways' needs the package pathwaysutils in the image, which cannot be imported: {error}; build"
            " the stack's image from requirements/image.txt, or leave out backend="
        ) from None
    utils.initialize()
    try:
        found = len(jax.devices())
    except RuntimeError as error:
        raise NoDevices(
            f"the proxy of Pathways gives no devices ({str(error).splitlines()[0]}); compare the versions of JAX of the"
            " images in functions.pathways with that of the stack's image, and see the logs of the head's containers"
        ) from error
    if found != spec.slices.devices:
        raise NoDevices(f"expected the {spec.slices.devices} devices of all slices from Pathways, got {found}")
    print(f"the head has the {found} devices of {spec.slices.total_hosts} hosts by Pathways", flush=True)
