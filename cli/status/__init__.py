"""`multislice status` and `multislice list`: what stands and how far the jobs are."""
