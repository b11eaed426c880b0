"""The rules that a plan must satisfy before it costs money."""
