"""Eight CPU devices for every test of the trainer, and small jobs for them to run."""

import os

# Before anything imports JAX, which reads them once.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_NUM_CPU_DEVICES"] = "8"
os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"
