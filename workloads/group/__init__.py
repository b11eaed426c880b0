"""Slices that train together without one JAX world: their membership, and the sums of gradients between them."""
