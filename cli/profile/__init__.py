"""`multislice profile`: some steps of a running job, recorded by all its hosts and brought here."""
