"""What became of a run, read from what it wrote down: history, goodput, pictures and the report. Knows no JAX."""
