"""Reads and changes a running cluster, and what runs in it."""
