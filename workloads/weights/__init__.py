"""Converts weights from and to files of Hugging Face: `python -m workloads.weights`."""
