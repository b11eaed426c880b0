"""Policies for which results of a layer's forward pass are kept until its backward pass.

Gathered weights are never kept, because they are too large.
"""

from collections.abc import Callable

import jax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.layout import Layout, with_layout_constraint

from workloads.spec import Remat

ATTENTION = "attention"
"""Output of attention and, for a kernel, other results that its backward pass needs."""

PROJECTION = "projection"
"""Output of a matrix product of a layer."""

PRODUCT = "product"
"""Product in the gated MLP, which is the input of its last matrix."""

KEYS_SCOPE = "keys_"
"""Prefix of the scope around a kernel with a window, before the number of keys for each block of queries."""

INPUT = "input"
"""Input of the layer."""

_KEPT: dict[Remat, tuple[str, ...]] = {
    "none": (PROJECTION, ATTENTION, PRODUCT),
    "dots": (PROJECTION, ATTENTION),
    "attention": (ATTENTION,),
    "full": (),
}


def rematerialised[**P, T](layer: Callable[P, T], policy: Remat) -> Callable[P, T]:
    """Return `layer` with the policy for which results of its forward pass are kept."""
    if policy == "offload":
        keeps = jax.checkpoint_policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[],
            names_which_can_be_offloaded=[INPUT, ATTENTION],
            offload_src="device",
            offload_dst="pinned_host",
        )
    else:
        keeps = jax.checkpoint_policies.save_only_these_names(*_KEPT[policy])
    return jax.checkpoint(layer, policy=keeps, prevent_cse=False)


def named(value: jax.Array, name: str) -> jax.Array:
    """Return `value` with its name for the policies, in row-major order.

    Results that are kept for all layers are one array. Without a fixed order, the TPU compiler lets one product choose
    another order for it and copies the array for the others: 19 % of a step of Llama-3.2-1B on v6e.
    """
    order = Layout(major_to_minor=tuple(range(value.ndim)))
    return checkpoint_name(with_layout_constraint(value, order), name)
