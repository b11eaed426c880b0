"""The rules that a plan must keep before anything is spent on it."""
