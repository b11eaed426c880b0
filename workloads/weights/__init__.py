"""Weights from and to the files of Hugging Face: `python -m workloads.weights`."""
