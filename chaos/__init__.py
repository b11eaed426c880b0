"""Injects faults into real jobs on the sandbox, and checks the results."""
