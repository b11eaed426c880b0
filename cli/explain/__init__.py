"""`multislice explain`: why a job waits, was put back, restarted or failed, in plain words."""
