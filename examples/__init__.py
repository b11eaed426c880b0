"""The rules of JAX on several hosts, each as a function that runs on slices; docs/functions.md says how."""
