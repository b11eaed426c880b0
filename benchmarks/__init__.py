"""Benchmarks of the repository's own code, to run by hand."""
