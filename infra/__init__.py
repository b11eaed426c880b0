"""The Pulumi side: turns one validated stack file into TPU capacity, a queue and running jobs."""
