"""Commands that act on a job of a stack that stands.

Each asks the cluster as the user who runs it; what that user may do is up to the cluster. A command that is refused has
changed nothing.
"""
