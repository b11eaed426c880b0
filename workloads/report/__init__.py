"""Reports on a run, made from its files: history, goodput, pictures and the page. Imports no JAX."""
