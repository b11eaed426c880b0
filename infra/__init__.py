"""The Pulumi side: one validated settings file becomes TPU capacity, a queue and a running job."""
