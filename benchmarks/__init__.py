"""Measurements of the repository's own code, run by hand."""
