"""Manages environments, which are copies of stacks that expire. See `docs/environments.md`."""
