"""Manages environments, which are copies of stacks that expire. See `docs/how-to/environments.md`."""
