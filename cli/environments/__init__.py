"""Environments: stacks that are made from others and end. `docs/environments.md` says how they are used."""
