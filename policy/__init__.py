"""The rules that a plan must keep before it costs money."""
