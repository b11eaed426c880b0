"""The JAX multislice trainer: `python -m workloads.training` in every host's container."""
