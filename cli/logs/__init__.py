"""What the hosts of a job print: read once, or followed over restarts and broken connections."""
