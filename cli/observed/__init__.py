"""Reads the state of a stack at one moment, from its cluster and the files of its jobs, into frozen values.

Nothing here fails if something cannot be read. The snapshot has a note about it instead.
"""
