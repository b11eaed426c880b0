"""Turns one stack file into TPU slices, a queue and running jobs. Only the modules of this folder declare resources."""
