"""A stack that stands at one moment: what its cluster and the files of its jobs tell, as frozen values.

Owns the reading; what is said of it is up to the commands. Nothing here fails for what cannot be read: it is told.
"""
