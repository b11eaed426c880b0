"""What of a layer's forward pass is kept until its backward pass.

Owns the names of the intermediate results that can be kept, and the policies over them. The gathered weights
are never kept: they are what is too large.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.layout import Layout, with_layout_constraint

from workloads.spec import Remat

ATTENTION = "attention"
"""Output of attention and, of a kernel, what its backward pass needs beside it."""

PROJECTION = "projection"
"""Output of a matrix product of a layer."""

PRODUCT = "product"
"""The gated MLP's product, input of its last matrix."""

KEYS_SCOPE = "keys_"
"""Before the number of keys that a block of queries meets in a kernel with a window: the scope around that kernel."""

INPUT = "input"
"""Input of the layer."""

_KEPT: dict[Remat, tuple[str, ...]] = {
    "none": (PROJECTION, ATTENTION, PRODUCT),
    "dots": (PROJECTION, ATTENTION),
    "attention": (ATTENTION,),
    "full": (),
}


def rematerialised[**P, T](layer: Callable[P, T], policy: Remat) -> Callable[P, T]:
    """`layer`, of whose forward pass `policy` says what is kept."""
    return jax.checkpoint(layer, policy=_policy(policy), prevent_cse=False)


def named(value: jax.Array, name: str) -> jax.Array:
    """`value` under the name that the policies know it by, in row-major order.

    A result that is kept for all layers is an array of all layers. Without a fixed order, the TPU compiler lets one
    product choose another for it and copies the array for the others: 18 % of a step of Llama-3.2-1B on v6e.
    """
    order = Layout(major_to_minor=tuple(range(value.ndim)))
    return checkpoint_name(with_layout_constraint(value, order), name)


def _policy(policy: Remat) -> Callable[..., Any]:
    if policy == "offload":
        return jax.checkpoint_policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[],
            names_which_can_be_offloaded=[INPUT],
            offload_src="device",
            offload_dst="pinned_host",
        )
    return jax.checkpoint_policies.save_only_these_names(*_KEPT[policy])
