"""The stack as data: its settings, numbers and names, and what they become in the cluster. It never loads Pulumi."""
