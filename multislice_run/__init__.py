"""Records of a program on slices: exit codes, ledger, steps, failures and metrics.

The trainer of this repository writes them, and so can any program with `multislice_run.attempt`. Commands and alerts
read them. The package runs on Python 3.11 and later, without JAX.
"""
