"""`multislice explain` says why a job waits, was evicted, restarted or failed."""
