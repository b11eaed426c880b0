"""Faults injected into real jobs on the sandbox, and what must hold afterwards."""
