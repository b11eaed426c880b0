"""Runs a call in the image: one function on every host of one or more slices."""
