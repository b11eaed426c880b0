"""The rules of JAX on several hosts, each as a function that runs on slices; docs/how-to/functions.md says how."""
