"""Kernels for TPU written in Pallas."""
